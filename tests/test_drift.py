"""`make drift` on packages that pip finds in a folder, none of which it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TRAINER = """
from pathlib import Path
Path("{ran}").touch()

def log(metrics, name, step):
    metrics["critic/score/mean"] = 1.0
    metrics.update({{"actor/entropy": 1.0, f"actor/{{name}}_loss": 2.0, "env/tool_use/mean": 3.0}})
    metrics["tool" + "_use/" + name] = open("data/set.json")
    return {{"response_length/mean": 3.0, "response_length/max": 4.0}}
"""
LIST = """
published: {example-trainer: verl, unpublished-trainer: verl}
repositories: {slime: 2026-08-21}
"""


@pytest.fixture(name="ran")
def _ran(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture(name="said")
def _said(tmp_path: Path, ran: Path) -> subprocess.CompletedProcess[str]:
    with zipfile.ZipFile(tmp_path / "example_trainer-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("example/log.py", TRAINER.format(ran=ran))
        wheel.writestr("example/setup.py", TRAINER.format(ran=ran))
        wheel.writestr("example/tests/log.py", 'metrics["actor/of_a_test"] = 1.0')
        wheel.writestr("example/damaged.py", "def log(:")
        about = "example_trainer-1.2.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: example-trainer\nVersion: 1.2\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    trainers = tmp_path / "trainers.yaml"
    trainers.write_text(LIST)
    command = [sys.executable, "-m", "tools.drift", "--trainers", str(trainers)]
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_keys_that_no_table_has_and_keys_that_no_source_has_are_listed(
    said: subprocess.CompletedProcess[str], ran: Path
) -> None:
    lines = said.stdout.splitlines()

    assert lines[0] == "example-trainer 1.2: 7 keys, 2 in no table"
    assert lines[1:3] == ["  + env/tool_use/mean", "  + tool_use/*"]
    gone = {line.removeprefix("  - ") for line in lines if line.startswith("  - ")}
    assert "actor_grad_norm" in gone
    assert gone.isdisjoint({"critic_score_mean", "actor_entropy", "response_length_mean", "actor_pg_loss"})
    assert lines[-1] == "slime: not on the package index; its sources were last read on 2026-08-21."
    assert not ran.exists()


def test_a_package_that_cannot_be_fetched_is_named_and_the_others_are_compared(
    said: subprocess.CompletedProcess[str],
) -> None:
    assert said.returncode == 1
    assert said.stderr.startswith("ERROR: unpublished-trainer: ")
    assert "Traceback" not in said.stderr
    assert "example-trainer 1.2" in said.stdout
