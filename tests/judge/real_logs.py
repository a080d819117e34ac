"""The real logs, loaded once, and what alerts say of each."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from stepwatch.backtest.progress import Progress
from stepwatch.backtest.results import Judged, Unjudged
from stepwatch.backtest.rules import Rule
from stepwatch.backtest.work import Backtest, prepared
from stepwatch.config import Config
from tests import real
from tests.judge.labels import Label
from tests.judge.score import Alarm, Verdict


@contextmanager
def loaded(logs: Iterable[Label], config: Config, also: Collection[str] = ()) -> Iterator[Backtest]:
    """All logs in a Prometheus of the newest version, with these metrics besides those that rules read."""
    tool = real.prometheus("3.13")
    os.environ["STEPWATCH_PROMETHEUS"], os.environ["STEPWATCH_PROMTOOL"] = str(tool.server), str(tool.tool)
    files = [str(log.path) for log in logs]
    with prepared(files, config, os.cpu_count() or 1, Progress(), also) as backtest:
        yield backtest


def verdicts(
    logs: Iterable[Label], runs: Sequence[Judged | Unjudged], rules: Iterable[Rule]
) -> dict[str, Verdict]:
    """What these rules say of each log."""
    topics = {rule.alert: rule.topic for rule in rules}
    judged = [run for run in runs if isinstance(run, Judged)]
    return {
        log.file: verdict(
            [(run.records, _alarms(run, topics)) for run in judged if str(log.path) in run.files]
        )
        for log in logs
    }


def verdict(runs: Iterable[tuple[int, Iterable[Alarm]]]) -> Verdict:
    """Of a log, from the records and alarms of its runs."""
    runs = [(records, tuple(alarms)) for records, alarms in runs]
    alarms = [alarm for _, found in runs for alarm in found]
    return Verdict(sum(records for records, _ in runs), tuple(sorted(alarms, key=lambda alarm: alarm.record)))


def _alarms(run: Judged, topics: dict[str, str]) -> Iterator[Alarm]:
    for alert in run.alerts:
        yield Alarm(alert.alert, alert.severity, topics[alert.alert], alert.first_record)
