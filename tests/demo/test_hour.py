"""A whole hour of the demo's quiet runs, record by record, under every rule about what a run logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from demo.story import STORIES
from demo.trainer import TOTAL, Trainer
from stepwatch.backtest.judge import Judged
from stepwatch.backtest.server import Progress
from stepwatch.config import Config
from tests.judge import real_logs

pytestmark = pytest.mark.e2e

QUIET = {"healthy": set[str](), "stagnates": {"RewardStagnation"}}
"""What may fire, by run."""


def log(folder: Path, name: str) -> Path:
    """All that a run writes until it is done, in the form that is read fastest."""
    story = next(story for story in STORIES if story.name == name)
    trainer = Trainer(replace(story, logger="console"), folder, seed=1, seconds=0.3)
    for _ in range(TOTAL + 1):
        trainer.tick()
    trainer.close()
    return trainer.path


@pytest.fixture(scope="module", name="judged")
def _judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    """What comes of each run."""
    folder = tmp_path_factory.mktemp("hour")
    logs = {str(log(folder, name)): name for name in QUIET}
    with real_logs.loaded(map(Path, logs), Config()) as backtest:
        runs = backtest.results(Progress()).runs
    return {logs[run.files[0]]: run for run in runs if isinstance(run, Judged)}


@pytest.mark.parametrize("run", QUIET)
def test_an_hour_raises_nothing_but_what_the_run_is_for(judged: dict[str, Judged], run: str) -> None:
    assert judged[run].records == TOTAL + 1
    assert {alert.alert for alert in judged[run].alerts} == QUIET[run]
