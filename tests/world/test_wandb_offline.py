"""A trainer that reports to W&B offline: its folder is one run, whose files no one takes for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.trainers import TRL, Training
from tests.world.trainers import bar
from tests.world.watching import Watching, brief, step

pytestmark = pytest.mark.world


def training(folder: Path, steps: int) -> Training:
    """A training whose W&B folder lies in ``runs``, and its console beside that."""
    options = ("--output", "runs", "--steps", str(steps), "--pace", "0.2", "--report-to", "wandb")
    return Training(TRL, *options, log=folder / "console.log", through="file", folder=folder)


def test_the_folder_of_a_finished_run_is_one_run_at_its_last_step(exporter: Watching, tmp_path: Path) -> None:
    with training(tmp_path, 40) as trained:
        assert trained.wait() == 0
    found = exporter.until(lambda found: "finished" in map(found.state, found.runs()))

    (run,) = found.runs()
    assert (step(found, run), found.value("rl_total_steps", run=run)) == (40, 40), brief(found)


def test_the_folder_of_a_killed_run_is_one_run_that_has_vanished(exporter: Watching, tmp_path: Path) -> None:
    with training(tmp_path, 200) as trained:
        trained.wait_for(bar(40, 200))
        seen = exporter.scrape()
        trained.kill()
    found = exporter.until(lambda found: "vanished" in map(found.state, found.runs()))

    (run,) = found.runs()
    assert seen.runs() == {run}
    assert 25 <= (step(found, run) or 0) <= 45
