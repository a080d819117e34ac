"""A wrapper does what a request file beside its log asks for, once, and only then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.files import launch
from tests.real.ending import end
from tests.real.waiting import eventually

TRAINER = """
import os, signal, subprocess, sys, time
folder, how = sys.argv[1:]
if how == "saves":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if how == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(os.getpid(), worker.pid, file=open(f"{folder}/new", "w"))
os.rename(f"{folder}/new", f"{folder}/pids")
while True:
    time.sleep(0.01)
    open(f"{folder}/beat", "a").write(".")
"""


class Running:
    """A wrapper and its trainer, which has a worker in a session of its own."""

    def __init__(self, folder: Path, how: str = "dies") -> None:
        self.folder, self.log, self.request = folder, folder / "runs/a.log", folder / "runs/a.log.request"
        command = ["run", "--runs", str(folder / "runs"), "--name", "a", "--"]
        trainer = [sys.executable, "-c", TRAINER, str(folder), how]
        self.process = subprocess.Popen([sys.executable, "-m", "stepwatch", *command, *trainer])
        eventually((folder / "pids").exists)
        self.trainer, self.worker = map(int, (folder / "pids").read_text().split())

    def ask(self, action: str, why: str = "KLExplosion") -> launch.Answer:
        launch.ask(self.log, launch.Request(f"{action}-1", action, 1, "stepwatch", why))
        return self.answer(f"{action}-1")

    def answer(self, request: str) -> launch.Answer:
        eventually(lambda: request in launch.answers(self.log))
        return launch.answers(self.log)[request]

    def ended(self) -> tuple[int, str, str]:
        """How the wrapper ended, its run's state, and the cause."""
        code, found = self.process.wait(60), launch.read(self.log)
        assert found is not None
        return code, found.state or "", found.cause

    def goes_on(self) -> None:
        """Wait until the trainer has done more."""
        beat, before = self.folder / "beat", logged(self.folder / "beat")
        eventually(lambda: logged(beat) > before)


def logged(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*how: str) -> Running:
        started.append(Running(tmp_path, *how))
        return started[-1]

    yield start
    for each in started:
        end(each.process, each.worker)


def test_stop_sends_sigterm_to_the_trainer_alone(running: Callable[..., Running]) -> None:
    run, token = running(), "hf_" + "a1B2" * 8
    answer = run.ask("stop", f"{token} {'x' * 3000}")

    assert (answer.done, answer.by, answer.why, answer.reason) == (
        *(True, "stepwatch"),
        *(f"(secret) {'x' * 191}", ""),
    )
    assert run.ended() == (-signal.SIGTERM, "stopped", f"stopped by stepwatch: {answer.why}")
    assert Path(f"/proc/{run.worker}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    assert sorted(path.name for path in run.log.parent.iterdir()) == ["a.log", "a.log.launch"]


def test_a_trainer_that_saves_and_exits_in_order_was_stopped(running: Callable[..., Running]) -> None:
    run = running("saves")
    run.ask("stop", why="")

    assert run.ended() == (0, "stopped", "stopped by stepwatch")


def test_kill_ends_all_that_the_trainer_started(running: Callable[..., Running]) -> None:
    run = running("deaf")
    assert run.ask("stop").done
    run.goes_on()
    assert run.ask("kill").done

    assert run.ended() == (-signal.SIGKILL, "stopped", "killed by stepwatch: KLExplosion")
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (run.trainer, run.worker)))


KILL = '{"id": "x", "action": "kill", "attempt": 1, "by": "", "why": ""}'


def _place(run: Running, *, age: float = 0.0, attempt: int = 1, owner: int | None = None) -> None:
    file = run.folder / "new"
    file.write_text(json.dumps({**json.loads(KILL), "attempt": attempt}))
    os.utime(file, (time.time() - age,) * 2)
    if owner is not None:
        os.chown(file, owner, owner)
    file.rename(run.request)


def _link(run: Running) -> None:
    (run.folder / "first").write_text(KILL)
    os.link(run.folder / "first", run.request)


REFUSED: dict[str, Callable[[Running], None]] = {
    "attempt 2 is meant, and attempt 1 runs": lambda run: _place(run, attempt=2),
    "the request is 10": lambda run: _place(run, age=100),
    "the request's file is a link": _link,
    "the request's file belongs to user 12345, not to root, this user or the folder's": (
        lambda run: _place(run, owner=12345)
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_request_that_must_not_be_done_is_refused_with_the_reason(
    running: Callable[..., Running], reason: str
) -> None:
    if "belongs" in reason and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    run = running()
    REFUSED[reason](run)
    answer = run.answer("x")

    assert (answer.done, answer.reason[: len(reason)], run.request.exists()) == (False, reason, False)
    run.goes_on()
    found = launch.read(run.log)
    assert found
    assert found.stopped is None


NO_REQUESTS: dict[str, Callable[[Path], object]] = {
    "no JSON": lambda request: request.write_text("{"),
    "deep": lambda request: request.write_text("[" * 8000),
    "an unknown action": lambda request: request.write_text(KILL.replace("kill", "delete")),
    "a link": lambda request: (
        request.with_name("aim").write_text(KILL) and request.symlink_to(request.with_name("aim"))
    ),
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
}


def test_what_is_not_a_request_changes_nothing(running: Callable[..., Running]) -> None:
    run = running()
    for make in NO_REQUESTS.values():
        make(run.request)
        looks = time.monotonic() + 1.5
        eventually(lambda looks=looks: time.monotonic() > looks or launch.answers(run.log))
        assert launch.answers(run.log) == {}
        if run.request.is_dir():
            run.request.rmdir()
        run.request.unlink(missing_ok=True)

    assert run.ask("stop").done
