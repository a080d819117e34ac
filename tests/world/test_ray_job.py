"""A trainer that `stepwatch run --ray` submits to a real Ray cluster: its end, its retry, its stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from exporter.runs.files import launch
from tests.real import eventually
from tests.real.rl_insight import OWN, RayCluster, environment

pytestmark = pytest.mark.world

GOES_ON = "import time\nprint('step', 1, flush=True)\ntime.sleep(1000)"
FAILS_ONCE = """
import os, sys
print("attempt", flush=True)
if not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "w")
    raise ConnectionError("lost")
"""


@pytest.fixture(name="address", scope="module")
def _address() -> Iterator[str]:
    with RayCluster() as cluster:
        port = next(
            word.partition("=")[2] for word in cluster.command if word.startswith("--dashboard-port=")
        )
        yield f"http://127.0.0.1:{port}"


class Submitted:
    """A wrapper that has submitted a program."""

    def __init__(self, folder: Path, address: str, program: Sequence[str], *options: str) -> None:
        self.log, self._address = folder / "runs/a.log", address
        self._env = {**os.environ, **OWN, "PATH": f"{environment()}:{os.environ['PATH']}"}
        run = ["run", "--runs", str(folder / "runs"), "--name", "a", "--ray", address, *options, "--"]
        command = [sys.executable, "-m", "stepwatch", *run, str(environment() / "python"), "-c", *program]
        self.process = subprocess.Popen(command, env=self._env)

    def prints(self, text: str) -> None:
        eventually(lambda: self.log.exists() and f"\n{text}" in self.log.read_text())

    def jobs(self) -> list[str]:
        """What Ray says of each job, the first first."""
        lines = Path(f"{self.log}.launch").read_text().splitlines()
        commands = [json.loads(line)["command"] for line in lines if '"command"' in line]
        ids = [command[command.index("--submission-id") + 1] for command in commands]
        status = [str(environment() / "ray"), "job", "status", "--address", self._address]
        asked = [
            subprocess.run([*status, each], env=self._env, capture_output=True, check=True) for each in ids
        ]
        words = ("succeeded", "failed", "was stopped", "RUNNING")
        return [next(word for word in words if word in each.stdout.decode()) for each in asked]

    @property
    def launch(self) -> launch.Launch:
        found = launch.read(self.log)
        assert found is not None
        return found


def test_a_job_that_fails_is_submitted_again_by_its_policy_and_ends_as_ray_says(
    tmp_path: Path, address: str
) -> None:
    policy = {"name": "p", "rules": [{"failures": ["network"]}], "interval": "1s"}
    (tmp_path / "config.yaml").write_text(json.dumps({"retry": [policy]}))
    options = ["--config", str(tmp_path / "config.yaml"), "--retry", "p"]
    job = Submitted(tmp_path, address, [FAILS_ONCE, str(tmp_path / "once")], *options)

    assert job.process.wait() == 0
    assert job.jobs() == ["failed", "succeeded"]
    assert (job.launch.state, job.launch.attempt) == ("finished", 2)


def test_a_stop_request_stops_the_job(tmp_path: Path, address: str) -> None:
    job = Submitted(tmp_path, address, [GOES_ON])
    job.prints("step 1")
    launch.ask(job.log, launch.Request("s", "stop", 1, "stepwatch", "KLExplosion"))
    job.process.wait()

    assert job.jobs() == ["was stopped"]
    assert (job.launch.state, job.launch.cause) == ("stopped", "stopped by stepwatch: KLExplosion")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_job_ends_with_its_wrapper(tmp_path: Path, address: str, number: signal.Signals) -> None:
    job = Submitted(tmp_path, address, [GOES_ON])
    job.prints("step 1")
    job.process.send_signal(number)
    job.process.wait()

    eventually(lambda: job.jobs() == ["was stopped"])
    eventually(lambda: job.launch.state == "failed")
    assert job.launch.cause == ("SIGTERM" if number == signal.SIGTERM else "wrapper killed")
