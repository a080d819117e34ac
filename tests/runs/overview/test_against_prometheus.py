"""Trainers' logs: the curves that the exporter keeps are those that a real Prometheus has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.runs.model.history import HistorySnapshot
from exporter.runs.model.run import Options
from exporter.runs.overview.models import RunId
from exporter.runs.overview.panels import Line, of_run
from exporter.runs.signals.key import keys_of
from stepwatch.backtest.command import Backtest
from stepwatch.backtest.replay import START, Replayed
from stepwatch.backtest.report import Panels
from stepwatch.operate import logfiles
from tests.judge.real_logs import loaded
from tests.own_logs import HEALTHY, SICK, TRL, TRUNCATED
from tests.runs.overview.conftest import config

pytestmark = pytest.mark.e2e

LOGS = (SICK, HEALTHY, TRUNCATED, TRL / "nan.log", TRL / "noisy.log")
CLOSE = 1e-9


@pytest.fixture(scope="module")
def backtest() -> Iterator[Backtest]:
    """The logs in a real Prometheus, with all that the panels read."""
    with loaded(LOGS, config(), Panels(config()).metrics) as found:
        yield found


def history(run: Replayed) -> HistorySnapshot:
    """What the exporter keeps of the run's log."""
    (found,) = logfiles.logs([run.files[0]], Path("nowhere"))[0]
    (made,) = logfiles.read(found, Options(keys=keys_of(config().signals))).runs.values()
    return made.history.snapshot()


def reported(backtest: Backtest, curve: Line, run: Replayed) -> dict[int, float]:
    """What Prometheus says of a curve, by step, at the last record of each."""
    query = of_run(curve.promql, RunId(run.run))
    times = backtest.prometheus.over(query, START + 1, START + len(run.steps)).get(run.run, {})
    at = {step: record for record, step in enumerate(run.steps, 1)}
    return {step: times[START + record] for step, record in at.items() if START + record in times}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_each_point_of_a_curve_is_what_prometheus_has_at_that_step(backtest: Backtest, log: Path):
    run = next(run for run in backtest.runs if run.files[0] == str(log))
    kept, compared = history(run), 0

    for curve in (each for panel in Panels(config()).of_run(run.run) for each in panel.curves):
        theirs = reported(backtest, curve, run)
        own = (kept.means if curve.smoothed else kept.curves).get(curve.signal)
        points = [point for piece in own.pieces() for point in piece] if own else []
        assert bool(points) == any(map(math.isfinite, theirs.values())), curve
        for step, value in points:
            assert value == pytest.approx(theirs[step], rel=CLOSE), (curve, step)
        if points:
            finite = [value for value in theirs.values() if math.isfinite(value)]
            drawn = [value for _, value in points]
            assert (min(drawn), max(drawn)) == pytest.approx((min(finite), max(finite)))
            compared += len(points)
    assert compared > 100
