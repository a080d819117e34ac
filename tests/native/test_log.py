"""What config.yaml says about logging reaches the demo's trainers, which have no file of settings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from stepwatch.config import Config
from stepwatch.deploy.native.stack import Stack
from stepwatch.deploy.native.state import State


def test_the_demo_s_trainers_log_as_config_yaml_says(tmp_path: Path) -> None:
    config = Config.model_validate({"log": {"level": "debug", "format": "json"}})
    part = Stack(config, State(tmp_path), tmp_path / "runs", demo=True).trainers()
    environment = {**os.environ, **part.environment}
    with subprocess.Popen(part.command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        line = process.stderr.readline()
        process.terminate()

    assert json.loads(line)["level"] == "INFO"
    assert "--log.level=debug" in part.command
