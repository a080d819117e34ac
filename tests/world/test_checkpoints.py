"""The best checkpoint of a real TRL training, whose rotation deletes its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.trainers import OFFLINE, TRL, environment

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.world

NEWEST = "import sys; from transformers.trainer_utils import get_last_checkpoint as f; print(f(sys.argv[1]))"
LOADED = """
import sys
from transformers import AutoModelForCausalLM
print(sum(weight.numel() for weight in AutoModelForCausalLM.from_pretrained(sys.argv[1]).parameters()))
"""


def _train(folder: Path, *options: str) -> str:
    """Train below the wrapper; returns what it logged."""
    trainer = [environment() / "python", "-I", "-u", TRL, "--output", folder / "out", *options]
    runs = ["--runs", folder / "runs", "--name", "a", "--checkpoints", folder / "out", "--keep-best", "1"]
    command = [sys.executable, "-m", "stepwatch", "run", *runs, "--", *trainer]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **OFFLINE},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stepwatch run:" not in done.stderr
    return (folder / "runs" / "a.log").read_text()


def _said(script: str, place: Path) -> str:
    command = [environment() / "python", "-I", "-c", script, place]
    done = subprocess.run(command, env={**os.environ, **OFFLINE}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_best_of_a_training_that_collapses_is_kept_and_resume_takes_the_newest(tmp_path: Path) -> None:
    saving = ("--save-steps", "10", "--save-total-limit", "1", "--pace", "0.5")
    collapse = ("--reward", "constant", "--later-reward", "nothing", "--later", "21")
    _train(tmp_path, "--steps", "50", *saving, *collapse)
    out, best = tmp_path / "out", tmp_path / "out.best"

    (about,) = best.glob("*/best.json")
    said = json.loads(about.read_text())
    name = said["checkpoint"]  # the reward is the same up to step 20
    assert (name in ("checkpoint-10", "checkpoint-20"), said["measure"]) == (True, "smoothed reward")
    assert sorted(each.name for each in out.glob("checkpoint-*")) == ["checkpoint-50"]
    assert int(_said(LOADED, best / name)) == int(_said(LOADED, out / "checkpoint-50"))

    assert _said(NEWEST, out) == str(out / "checkpoint-50")
    log = _train(tmp_path, "--steps", "60", *saving, "--reward", "nothing", "--resume")
    assert sorted(each.name for each in out.glob("checkpoint-*")) == ["checkpoint-60"]
    assert "60/60" in log
    assert (best / name / "trainer_state.json").exists()
