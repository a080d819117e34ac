"""Trainers' logs: what the exporter makes of its statistics is what a real Prometheus makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.runs.history.formula import values
from exporter.runs.history.history import Kept
from exporter.runs.run import Options
from stepwatch import logfiles
from stepwatch.backtest.tape import START, Replayed
from stepwatch.backtest.work import Backtest
from stepwatch.deployment import OnThisMachine
from stepwatch.generate import CHECKOUT, render_all
from stepwatch.panels.dashboard import Panel, Query
from stepwatch.panels.dashboard import panels as of_dashboard
from tests.history.conftest import EVERY_LIMIT, config, panels
from tests.judge.real_logs import loaded
from tests.own_logs import HEALTHY, SICK, TRL, TRUNCATED

pytestmark = pytest.mark.e2e

LOGS = (SICK, HEALTHY, TRUNCATED, TRL / "nan.log", TRL / "noisy.log")
CLOSE = 1e-9


@pytest.fixture(scope="module")
def dashboard() -> tuple[Panel, ...]:
    return of_dashboard(render_all(config(*EVERY_LIMIT), CHECKOUT, OnThisMachine))


@pytest.fixture(scope="module")
def backtest(dashboard: tuple[Panel, ...]) -> Iterator[Backtest]:
    """The logs in a real Prometheus, with all that the panels read."""
    metrics = frozenset().union(*(panel.metrics for panel in dashboard))
    with loaded(LOGS, config(*EVERY_LIMIT), metrics) as found:
        yield found


def history(run: Replayed) -> Kept:
    """What the exporter keeps of the run's log."""
    (found,) = logfiles.logs([run.files[0]], Path("nowhere"))[0]
    (made,) = logfiles.read(found, Options(keys=config().signals)).runs.values()
    return made.history.kept(run.run, made.statistics)


def told(backtest: Backtest, query: Query, run: Replayed) -> dict[int, float]:
    """What Prometheus says of a query, by step, at the last record of each."""
    times = backtest.prometheus.over(query.of(run.run), START + 1, START + len(run.steps)).get(run.run, {})
    at = {step: record for record, step in enumerate(run.steps, 1)}
    return {step: times[START + record] for step, record in at.items() if START + record in times}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_limits_and_means_are_those_of_prometheus_at_every_step_that_is_sampled(
    backtest: Backtest, dashboard: tuple[Panel, ...], log: Path
):
    run = next(run for run in backtest.runs if run.files[0] == str(log))
    table, compared = history(run).table, 0

    for panel, mine in zip(dashboard, panels(*EVERY_LIMIT).of_run(run.run).panels, strict=True):
        own = [limit for limit in mine.limits if limit.signal in mine.signals]
        limits = [(limit.formula, query) for limit, query in zip(own, panel.limits, strict=True)]
        means = [
            (line.formula, query)
            for line, query in zip(mine.curves, panel.curves, strict=True)
            if not line.signal
        ]
        for formula, query in (*limits, *means):
            theirs = told(backtest, query, run)
            for step, value in zip(table.steps, values(formula, table), strict=True):
                other = theirs.get(step, math.nan)
                assert (value is None) == math.isnan(other), (panel.title, query, step)
                if value is not None:
                    assert value == pytest.approx(other, rel=CLOSE, abs=CLOSE), (panel.title, query, step)
                    compared += 1
    assert compared > 100


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_each_point_of_a_curve_is_what_prometheus_has_at_that_step(
    backtest: Backtest, dashboard: tuple[Panel, ...], log: Path
):
    run = next(run for run in backtest.runs if run.files[0] == str(log))
    curves, compared = history(run).curves, 0

    for panel, mine in zip(dashboard, panels(*EVERY_LIMIT).panels, strict=True):
        for line, query in zip(mine.curves, panel.curves, strict=True):
            theirs = told(backtest, query, run)
            if line.signal is None:
                continue
            points = (
                [point for piece in curves[line.signal].pieces() for point in piece]
                if line.signal in curves
                else []
            )
            assert bool(points) == any(map(math.isfinite, theirs.values())), (panel.title, line)
            for step, value in points:
                assert value == pytest.approx(theirs[step], rel=CLOSE), (panel.title, line, step)
            if points:
                finite = [value for value in theirs.values() if math.isfinite(value)]
                drawn = [value for _, value in points]
                assert (min(drawn), max(drawn)) == pytest.approx((min(finite), max(finite)))
                compared += len(points)
    assert compared > 100
