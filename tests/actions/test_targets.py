"""How a run is reached that `stepwatch run` did not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from exporter.actions.policy import Action, Attempt
from exporter.actions.targets import Group, RayJob, Saving, TargetError, Wrapped, find
from exporter.runs.files import launch
from stepwatch.system.environment import CHECKOUT
from tests.real.ending import ended
from tests.real.listening import Listening
from tests.real.waiting import eventually

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
        with pytest.raises(TargetError, match="now names another process"):
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


SAVER = """
import signal, sys, time
from pathlib import Path
from tests.checkpoints import saving

out, how, asked = Path(sys.argv[1]), sys.argv[2], []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
saving.transformers(out, 10)
print("saves", flush=True)
while True:
    time.sleep(0.02)
    if asked and how == "saves":
        saving.transformers(out, 11)
        asked.clear()
    if asked and how == "dies":
        sys.exit(1)
"""


@pytest.mark.parametrize(
    ("how", "within", "says"),
    [
        ("saves", 300.0, "checkpoint-11 is complete, after SIGUSR1"),
        ("dies", 300.0, "ended before a checkpoint was complete"),
        ("hangs", 1.0, "no new checkpoint was complete within 1 s of SIGUSR1"),
    ],
)
def test_a_checkpoint_that_was_asked_for_is_waited_for(
    tmp_path: Path, how: str, within: float, says: str
) -> None:
    out, log = tmp_path / "out", tmp_path / "runs/a.log"
    run = [sys.executable, "-m", "stepwatch", "run", "--runs", str(tmp_path / "runs"), "--name", "a"]
    trainer = [sys.executable, "-c", SAVER, str(out), how]
    with ended() as started:
        started.append(subprocess.Popen([*run, "--checkpoints", str(out), "--", *trainer], cwd=CHECKOUT))
        eventually(lambda: [each.name for each in launch.read_checkpoints(log)] == ["checkpoint-10"])
        target = find("a", log, [])
        assert isinstance(target, Wrapped)
        with pytest.raises(TargetError, match=r"Fix: set actions\.checkpoint_signal"):
            target.save(None, ACTION)
        about = replace(ACTION, attempt=target.attempt)
        if how == "saves":
            assert target.save(Saving("SIGUSR1", within), about) == says
            assert started[0].poll() is None
        else:
            with pytest.raises(TargetError, match=says):
                target.save(Saving("SIGUSR1", within), about)


def test_only_a_wrapped_run_can_be_asked_for_a_checkpoint(tmp_path: Path) -> None:
    for target in (Group(tmp_path, 1, 0.0), RayJob("http://127.0.0.1:1", "a", 0.0)):
        with pytest.raises(TargetError, match="only a run that `stepwatch run` started"):
            target.save(Saving("SIGUSR1", 1.0), ACTION)
