"""How a run is reached that `stepwatch run` did not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from exporter.actions.policy import Action, Attempt
from exporter.actions.targets import Group, RayJob, TargetError
from tests.real.listening import Listening

ACTION = Action(
    "4f", "a", "KLExplosion", "critical", "f", 2e9, Attempt("", 1, 0.0), ("stop",), None, False, 1.0
)


class Ray(Listening):
    """The part of Ray's dashboard that knows one job, `raysubmit_1`."""

    def __init__(self, status: str = "RUNNING") -> None:
        self.status, self.stopped = status, 0
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                job = {"status": this.status, "start_time": 1_700_000_000_500}
                self._answer(job if self.path == "/api/jobs/raysubmit_1" else None)

            def do_POST(self) -> None:
                known = self.path == "/api/jobs/raysubmit_1/stop"
                this.stopped += known
                self._answer({"stopped": True} if known else None)

            def _answer(self, value: Any) -> None:
                self.send_response(404 if value is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        super().__init__(Handler)


def test_a_job_of_ray_is_stopped_while_it_runs() -> None:
    with Ray() as ray:
        job = RayJob.ask(ray.url, "raysubmit_1")
        assert (job.gone, job.attempt.started) == ("", 1_700_000_000.5)
        assert job.send("stop", ACTION) == "`ray job stop raysubmit_1`"
        assert ray.stopped == 1
        with pytest.raises(TargetError, match="Ray cannot pause a job"):
            job.send("pause", ACTION)
        ray.status = "SUCCEEDED"
        assert RayJob.ask(ray.url, "raysubmit_1").gone == "ended"
        assert RayJob.ask(ray.url, "raysubmit_2").gone == "no_ray_job"
    assert RayJob.ask(ray.url, "raysubmit_1").gone == "no_ray_job"
    with pytest.raises(TargetError, match="does not answer"):
        job.send("stop", ACTION)


def test_only_a_group_s_leader_that_is_older_than_its_file_is_reached(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert Group.read(file).gone == "no_pid_file"
    sleeping = [sys.executable, "-c", "import time; time.sleep(1000)"]
    leader = subprocess.Popen(sleeping, start_new_session=True)
    member = subprocess.Popen(sleeping)
    try:
        for text, gone in {
            f"{leader.pid}\n": "",
            f"{member.pid}": "no_group",
            f"{os.getpgid(0)}": "no_group" if os.getpgid(0) > 1 else "ended",
            "1": "ended",
            "-1": "ended",
            "0": "ended",
            "words": "ended",
        }.items():
            file.write_text(text)
            assert Group.read(file).gone == gone, text
        file.write_text(f"{leader.pid}\n")
        known = Group.read(file)
        os.utime(file, (time.time() - 1000,) * 2)
        assert Group.read(file).gone == "pid_reused"
        with pytest.raises(TargetError, match="names another process by now"):
            known.send("stop", ACTION)
        assert leader.poll() is None
        file.write_text(f"{leader.pid}\n")
        assert known.send("stop", ACTION) == f"SIGTERM to process group {leader.pid}"
        leader.wait()
        assert Group.read(file).gone == "ended"
    finally:
        for each in (leader, member):
            each.kill()
            each.wait()
