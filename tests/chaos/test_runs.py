"""The simulated runs, record by record, under every rule about what a run logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwatch.backtest.judge import Judged
from stepwatch.backtest.replay import Progress
from stepwatch.config import Config
from tests.chaos.runs import LOCAL, REMOTE, SICK, SILENCED, Runs
from tests.judge import real_logs

pytestmark = pytest.mark.e2e

STEPS = 900
"""Six minutes of them, three times as long as a schedule takes."""
SICK_FROM = (20, 80, 300)


@pytest.mark.parametrize("step", SICK_FROM)
def test_the_sick_ones_page_within_ten_steps_and_the_healthy_ones_raise_nothing(
    tmp_path: Path, step: int
) -> None:
    runs = Runs(dict.fromkeys((*LOCAL, REMOTE), tmp_path))
    for number in range(STEPS if step == SICK_FROM[0] else step + 20):
        if number == step:
            runs.sicken(SICK, SILENCED)
        runs.tick()
    for trainer in runs.trainers:
        trainer.close()

    with real_logs.loaded([trainer.path for trainer in runs.trainers], Config()) as backtest:
        judged = [run for run in backtest.results(Progress()).runs if isinstance(run, Judged)]

    alerts = {Path(run.files[0]).stem: run.alerts for run in judged}
    assert alerts.keys() == {Path(name).name for name in runs.names}
    for name in (SICK, SILENCED):
        assert min(alert.first_step for alert in alerts[name] if alert.severity == "critical") <= step + 10
    assert {name for name, raised in alerts.items() if raised} == {SICK, SILENCED}
