"""What config.yaml says about logging reaches the parts that have no file of settings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from stepwatch.config import Config
from stepwatch.deploy.native.stack import Part, Stack
from stepwatch.deploy.native.state import State

CONFIG = Config.model_validate({"log": {"level": "debug", "format": "json"}})


@pytest.fixture(name="stack")
def _stack(tmp_path: Path) -> Stack:
    return Stack(CONFIG, State(tmp_path), tmp_path / "runs", demo=True)


def logged(part: Part) -> str:
    """The first line that it logs."""
    environment = {**os.environ, **part.environment}
    with subprocess.Popen(part.command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        line = process.stderr.readline()
        process.terminate()
    return line


def test_the_demo_s_trainers_log_as_config_yaml_says(stack: Stack) -> None:
    assert json.loads(logged(stack.trainers()))["level"] == "INFO"
    assert "--log.level=debug" in stack.trainers().command
