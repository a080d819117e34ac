"""Logs, loaded once, and what alerts say of each."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from stepwatch.backtest.command import Backtest, prepared
from stepwatch.backtest.judge import Judged, Rule
from stepwatch.backtest.replay import Progress, Replayed, Unjudged
from stepwatch.config import Config
from tests import real
from tests.judge.score import Alarm, Verdict


@contextmanager
def loaded(logs: Iterable[Path], config: Config, also: Collection[str] = ()) -> Iterator[Backtest]:
    """The logs in a Prometheus of the newest version, with these metrics besides those that rules read."""
    tool = real.prometheus("3.13")
    programs = {"STEPWATCH_PROMETHEUS": str(tool.server), "STEPWATCH_PROMTOOL": str(tool.tool)}
    with (
        mock.patch.dict(os.environ, programs),
        prepared(list(map(str, logs)), config, os.cpu_count() or 1, Progress(), also) as backtest,
    ):
        yield backtest


def of_rules(runs: Iterable[Judged | Unjudged], rules: Iterable[Rule]) -> dict[str, Verdict]:
    """What these rules say of each file."""
    return of_judged(runs, {rule.alert: rule.topic for rule in rules})


def of_judged(runs: Iterable[Judged | Unjudged], topics: Mapping[str, str]) -> dict[str, Verdict]:
    """What was said of each file, with the topics of alerts."""
    found: dict[str, Verdict] = {}
    for run in runs:
        if isinstance(run, Judged):
            alarms = (
                Alarm(each.alert, each.severity, topics[each.alert], each.first_record, each.last_record)
                for each in run.alerts
            )
            _note(found, run.files, run.records, alarms)
    return found


def of_runs(runs: Iterable[Replayed], sent: dict[str, tuple[Alarm, ...]]) -> dict[str, Verdict]:
    """What was sent for each file's runs."""
    found: dict[str, Verdict] = {}
    for run in runs:
        _note(found, run.files, len(run.steps), sent[run.run])
    return found


def _note(found: dict[str, Verdict], files: Iterable[str], records: int, alarms: Iterable[Alarm]) -> None:
    """One more run of these files."""
    for file in files:
        before = found.get(file, Verdict())
        together = sorted([*before.alarms, *alarms], key=lambda alarm: alarm.record)
        found[file] = Verdict(before.records + records, tuple(together))


def broken(backtest: Backtest, signals: Iterable[str]) -> Iterator[tuple[str, list[set[int]]]]:
    """Each file with the records at which a signal is NaN or Inf, a set for each signal."""
    metrics = [f"max by (run) (rl_{signal})" for signal in signals]
    odd = [f"{metric} != {metric} or abs({metric}) == Inf" for metric in metrics]
    found = [backtest.prometheus.records(expression) for expression in odd]
    for run in backtest.runs:
        yield run.files[0], [set(records) for each in found if (records := each.get(run.run))]
