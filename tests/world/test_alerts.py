"""The whole stack beside real trainers: the alert of each end, as it reaches a receiver."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.e2e.stack import PAIRS, Stack
from tests.world.trainers import Trainer, bar

pytestmark = pytest.mark.world

SILENCE = {"Stalled": {"silence": "1m"}}


@pytest.fixture(scope="module", name="stack")
def _stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack"), PAIRS[-1], alerts=SILENCE) as running:
        yield running


@pytest.mark.parametrize("through", ["tee", "file"])
@pytest.mark.parametrize("name", ["trl", "verl"])
def test_a_killed_training_pages_as_vanished_and_as_nothing_else(
    stack: Stack, tmp_path: Path, name: Literal["trl", "verl"], through: Literal["tee", "file"]
) -> None:
    trainer, run = Trainer(name, through), f"killed-{name}-{through}"
    with trainer.training(tmp_path, steps=200, log=stack.runs / f"{run}.log") as training:
        training.wait_for(bar(40, 200))
        stack.wait_step(run, 20)
        training.kill()
    alert = stack.wait_sent(run, {"RunVanished"})

    assert alert["labels"]["severity"] == "critical"
    assert {alert for alert, _ in stack.sent(run)} == {"RunVanished"}


@pytest.mark.parametrize("steps", [0, 30])
@pytest.mark.parametrize("name", ["trl", "verl"])
def test_a_training_that_raises_pages_as_failed_and_as_nothing_else(
    stack: Stack, tmp_path: Path, name: Literal["trl", "verl"], steps: int
) -> None:
    trainer, run = Trainer(name, "tee"), f"failed-{name}-{steps}"
    options = trainer.fails_after(steps)
    with trainer.training(tmp_path, options, steps=200, log=stack.runs / f"{run}.log") as training:
        assert training.wait() != 0
    stack.wait_sent(run, {"RunFailed"})

    assert {alert for alert, _ in stack.sent(run)} == {"RunFailed"}


@pytest.mark.parametrize("name", ["trl", "verl"])
def test_a_training_that_is_stopped_pages_as_stalled_and_as_nothing_else(
    stack: Stack, tmp_path: Path, name: Literal["trl", "verl"]
) -> None:
    trainer, run = Trainer(name, "tee"), f"stopped-{name}"
    with trainer.training(tmp_path, steps=200, log=stack.runs / f"{run}.log") as training:
        training.wait_for(bar(40, 200))
        stack.wait_step(run, 20)
        training.send(signal.SIGSTOP)
        stack.wait_sent(run, {"Stalled"})
        training.send(signal.SIGCONT)
        training.kill()
    assert {alert for alert, _ in stack.sent(run)} == {"Stalled"}


@pytest.mark.parametrize("name", ["trl", "verl"])
def test_a_finished_training_pages_for_nothing(
    stack: Stack, tmp_path: Path, name: Literal["trl", "verl"]
) -> None:
    trainer, run = Trainer(name, "tee"), f"finished-{name}"
    with trainer.training(tmp_path, steps=60, log=stack.runs / f"{run}.log") as training:
        assert training.wait() == 0
    stack.wait_step(run, 60)

    assert stack.sent(run) == []
