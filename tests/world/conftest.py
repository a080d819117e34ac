"""Trainings with the run exporter beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world.trainers import EVERY, Trainer
from tests.world.watching import Watching


@pytest.fixture(name="trainer", params=EVERY, ids=str)
def _trainer(request: pytest.FixtureRequest) -> Trainer:
    trainer: Trainer = request.param
    return trainer


@pytest.fixture(name="exporter")
def _exporter(tmp_path: Path) -> Iterator[Watching]:
    """The exporter of the folder ``runs``."""
    (tmp_path / "runs").mkdir()
    with Watching(tmp_path / "runs") as exporter:
        yield exporter
