"""A whole hour of the demo's quiet runs, record by record, under every rule about what a run logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from demo.scenario import SCENARIOS
from demo.trainer import TOTAL, Trainer
from stepwatch.backtest.judge import Judged
from stepwatch.backtest.replay import Progress
from stepwatch.config import Config
from tests.judge import real_logs

pytestmark = pytest.mark.e2e

QUIET = {"healthy": set[str](), "stagnates": {"RewardStagnation"}}
"""What may fire, by run."""


def log(folder: Path, name: str) -> Path:
    """All that a run writes until it is done, in the form that is read fastest."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    trainer = Trainer(replace(scenario, logger="console"), folder, seed=1, seconds=0.3)
    for _ in range(TOTAL + 1):
        trainer.tick()
    trainer.close()
    return trainer.path


@pytest.mark.parametrize("run", ["healthy", pytest.param("stagnates", marks=pytest.mark.world)])
def test_an_hour_raises_nothing_but_what_the_run_is_for(tmp_path: Path, run: str) -> None:
    with real_logs.loaded([log(tmp_path, run)], Config()) as backtest:
        (judged,) = backtest.results(Progress()).runs

    assert isinstance(judged, Judged)
    assert judged.records == TOTAL + 1
    assert {alert.alert for alert in judged.alerts} == QUIET[run]
