"""Real trainers end in every way, and what the run exporter says of it within 30 s."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.world.trainers import Trainer, bar
from tests.world.watching import PROMPT, Watching, agrees, brief, step

pytestmark = pytest.mark.world


def test_while_it_trains_and_when_it_has_finished_steps_and_rewards_are_the_trainers_own(
    trainer: Trainer, exporter: Watching, tmp_path: Path
) -> None:
    seen = []
    with trainer.training(tmp_path, steps=60) as training:
        while training.running:
            seen.append(exporter.scrape())
            time.sleep(0.3)
        assert training.wait() == 0
    last = exporter.until(lambda found: found.state("a") == "finished")
    recorded = trainer.recorded(tmp_path)

    assert (step(last, "a"), last.value("rl_total_steps", run="a")) == (60, 60)
    during = [found for found in [*seen, last] if step(found, "a")]
    assert len({step(found, "a") for found in during}) > 3
    assert [brief(found) for found in during if not agrees(found, "a", recorded)] == []
    assert [brief(found) for found in seen if found.state("a") in {"failed", "vanished", "stopped"}] == []


def test_a_killed_training_has_vanished_at_the_step_that_its_log_shows(
    trainer: Trainer, exporter: Watching, tmp_path: Path
) -> None:
    with trainer.training(tmp_path, steps=200) as training:
        training.wait_for(bar(40, 200))
        exporter.scrape()
        training.kill()
    found = exporter.until(lambda found: found.state("a") == "vanished")

    at = step(found, "a")
    assert at is not None
    # What Python had not written of the last steps when it was killed is in no log.
    assert 25 <= at <= 45 if trainer.buffered else 40 <= at <= 45
    assert found.value("rl_total_steps", run="a") == 200


def test_a_training_that_is_stopped_lives_makes_no_step_and_goes_on(
    trainer: Trainer, exporter: Watching, tmp_path: Path
) -> None:
    with trainer.training(tmp_path, steps=70) as training:
        training.wait_for(bar(40, 70))
        exporter.scrape()
        training.send(signal.SIGSTOP)
        *_, first = exporter.scrapes(PROMPT // 2)  # by now the unfinished last line of the log is read
        silent = list(exporter.scrapes(PROMPT // 2))
        training.send(signal.SIGCONT)
        assert training.wait() == 0
    when = "rl_last_step_timestamp_seconds"

    assert {found.state("a") for found in [first, *silent]} == {"running"}
    assert {found.value("rl_run_writer_present", run="a") for found in silent} == {1.0}
    assert {found.value(when, run="a") for found in silent} == {first.value(when, run="a")}
    exporter.until(lambda found: found.state("a") == "finished" and step(found, "a") == 70)
