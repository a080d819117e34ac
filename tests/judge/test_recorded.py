"""With its limits as series, an alert fires at the records at which the backtest has it fire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.runs.model.run import Options
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.unmapped import RawRule
from stepwatch.alerts import promql
from stepwatch.alerts.table import TABLE
from stepwatch.backtest.replay import SAMPLES, START, find, replay
from stepwatch.rules.alerting import InForce, in_force
from tests import own_logs, real
from tests.judge.labels import labels
from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.promtool import Group

pytestmark = pytest.mark.e2e

CONFIG = rendered.config()
JUDGED = [each for each in in_force(CONFIG, TABLE) if each.alert.from_records]
LOGS = [label.path for label in labels()] or [*own_logs.CONSOLES, *own_logs.EVENT_FILES]
SAMPLED = 26
"""One log of so many is replayed by `make test`; the others take minutes."""


def _rules(each: InForce) -> Iterator[dict[str, Any]]:
    """What records the limits of an alert, and when it fires, in both ways."""
    labels = {"alert": each.alert.name, "severity": each.severity}
    if each.records:
        yield from map(each.limit_rule, each.conditions)
    for record, inline in (("recorded", False), ("inline", True)):
        yield {"record": record, "expr": each.guarded(*each.conditions, inline=inline), "labels": labels}


DIFFERS = "inline unless recorded or recorded unless inline or inline != recorded"
RULES = [*(rule for each in JUDGED for rule in _rules(each)), {"record": "differs", "expr": DIFFERS}]
METRICS = frozenset().union(*(promql.metrics(rule["expr"]) for rule in RULES))


def _series(samples: Path) -> tuple[dict[str, str], int]:
    """The samples of a log in promtool's notation, one a second, and when the last one is."""
    parts: dict[str, list[str]] = {}
    ends: dict[str, int] = {}
    for line in samples.read_text().splitlines():
        series, value, time = line.rsplit(" ", 2)
        at = int(time) - START
        parts.setdefault(series, []).append(f"_x{gap}" if (gap := at - ends.get(series, 0)) else "")
        parts[series].append(value)
        ends[series] = at + 1
    return {series: " ".join(filter(None, words)) for series, words in parts.items()}, max(ends.values())


def _check(log: Path, folder: Path, *, fires: int = 0) -> None:
    """Fail if an alert fires in one way only at any record, or fewer than ``fires`` do."""
    options = Options(keys=keys_of(CONFIG.signals), raw=RawRule(limit=0))
    found = find([str(log)], CONFIG.runs.path)
    list(replay(found, METRICS, options, folder, jobs=1, tick=lambda: None))
    for samples in folder.glob(f"*{SAMPLES}"):
        if samples.stat().st_size:
            series, end = _series(samples)
            values = {
                ("count(count_over_time(differs[1d])) or vector(0)", end): 0.0,
                (f"count(count_over_time(inline[1d])) >= bool {fires} or vector({int(not fires)})", end): 1.0,
            }
            group = Group(log.name, series, [], values, interval=1)
            unit.check(real.prometheus("3.13").tool, unit.write(folder, samples.stem, RULES, [group]))


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(log, id=log.name, marks=[pytest.mark.world] if number % SAMPLED else [])
        for number, log in enumerate(LOGS)
    ],
)
def test_an_alert_fires_at_the_same_records_with_its_limits_in_place(log: Path, tmp_path: Path) -> None:
    _check(log, tmp_path)


def test_so_it_does_where_a_run_is_sick(tmp_path: Path) -> None:
    _check(own_logs.SICK, tmp_path, fires=4)
