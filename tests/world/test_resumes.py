"""Real trainers go on from a checkpoint in the same log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.real.trainers import Training
from tests.runs.scrape import Scrape
from tests.world.trainers import EVERY, Trainer, bar
from tests.world.watching import Watching, agrees, brief, step

pytestmark = pytest.mark.world

CHECKPOINT = 40
"""The newest one when a training is killed behind step 47."""


def watched(exporter: Watching, training: Training) -> list[Scrape]:
    """What is said while a training runs to its end."""
    seen = []
    with training:
        while training.running:
            seen.append(exporter.scrape())
            time.sleep(0.3)
        assert training.wait() == 0
    return seen


def test_a_resumed_training_repeats_steps_and_goes_on_to_the_last_one(
    trainer: Trainer, exporter: Watching, tmp_path: Path
) -> None:
    with trainer.training(tmp_path, steps=80) as training:
        training.wait_for(bar(47, 80))
        exporter.scrape()
        training.kill()
    highest = step(exporter.until(lambda found: found.state("a") == "vanished"), "a") or 0
    before = trainer.recorded(tmp_path)
    again = trainer.training(tmp_path, trainer.resumes, steps=80, append=True)
    seen = watched(exporter, again)
    last = exporter.until(lambda found: found.state("a") == "finished")
    recorded = before | trainer.recorded(tmp_path)

    assert (step(last, "a"), last.value("rl_total_steps", run="a")) == (80, 80)
    # Of a buffered log the records behind the checkpoint may be lost, and then no step is logged twice.
    resumes = int(highest > CHECKPOINT)
    assert resumes == 1 or trainer.buffered
    assert last.value("rl_resumes_total", run="a") == resumes
    steps = [at for found in seen if (at := step(found, "a")) is not None]
    assert max(steps) <= 80
    resumed = [found for found in seen if found.value("rl_resumes_total", run="a") == resumes]
    after = resumed if resumes else [found for found in resumed if (step(found, "a") or 0) > highest]
    assert {found.state("a") for found in after if step(found, "a") != 80} <= {"running"}
    # Steps that are logged a second time are not counted again.
    further = [found for found in [*after, last] if (step(found, "a") or 0) > highest]
    assert [brief(found) for found in further if not agrees(found, "a", recorded)] == []


@pytest.mark.parametrize("trainer", EVERY[:4], ids=str)
def test_a_finished_training_that_is_resumed_with_more_to_do_goes_on(
    trainer: Trainer, exporter: Watching, tmp_path: Path
) -> None:
    with trainer.training(tmp_path, steps=20) as training:
        assert training.wait() == 0
    exporter.until(lambda found: found.state("a") == "finished")
    seen = watched(exporter, trainer.training(tmp_path, "--resume", steps=50, append=True))
    last = exporter.until(lambda found: found.state("a") == "finished" and step(found, "a") == 50)

    assert last.value("rl_total_steps", run="a") == 50
    steps = [at for found in seen if (at := step(found, "a")) is not None]
    assert steps == sorted(steps)
    assert agrees(last, "a", trainer.recorded(tmp_path))
