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
folder = sys.argv[1]
if "save" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(worker.pid, file=open(f"{folder}/worker", "w"))
print(os.getpid(), file=open(f"{folder}/new", "w"))
os.rename(f"{folder}/new", f"{folder}/trainer")
while True:
    time.sleep(0.01)
    open(f"{folder}/beat", "a").write(".")
"""


class Running:
    """A wrapper and its trainer, which has a worker in a session of its own."""

    def __init__(self, folder: Path, *how: str) -> None:
        self.folder, self.log = folder, folder / "runs/a.log"
        command = ["run", "--runs", str(folder / "runs"), "--name", "a", "--"]
        trainer = [sys.executable, "-c", TRAINER, str(folder), *how]
        self.process = subprocess.Popen([sys.executable, "-m", "stepwatch", *command, *trainer])
        eventually((folder / "trainer").exists)
        self.trainer, self.worker = (int((folder / name).read_text()) for name in ("trainer", "worker"))

    def ask(self, action: str, why: str = "KLExplosion") -> launch.Answer:
        launch.ask(self.log, launch.Request(f"{action}-1", action, 1, "stepwatch", why))
        return self.answer(f"{action}-1")

    def answer(self, request: str) -> launch.Answer:
        eventually(lambda: request in launch.answers(self.log))
        return launch.answers(self.log)[request]

    def launch(self) -> launch.Launch:
        found = launch.read(self.log)
        assert found is not None
        return found

    def beats(self) -> int:
        beat = self.folder / "beat"
        return beat.stat().st_size if beat.exists() else 0


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*how: str) -> Running:
        started.append(Running(tmp_path, *how))
        return started[-1]

    yield start
    for each in started:
        end(each.process, each.worker)


def state(pid: int) -> str:
    """The state of a process, as `ps` shows it; X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def test_stop_sends_sigterm_to_the_trainer_alone(running: Callable[..., Running]) -> None:
    run = running()
    answer = run.ask("stop")

    assert (answer.done, answer.by, answer.why, answer.reason) == (True, "stepwatch", "KLExplosion", "")
    assert run.process.wait(60) == -signal.SIGTERM
    assert state(run.worker) == "S"
    found = run.launch()
    assert (found.state, found.cause, found.signal) == (
        "stopped",
        "stopped by stepwatch: KLExplosion",
        "SIGTERM",
    )
    assert sorted(path.name for path in run.log.parent.iterdir()) == ["a.log", "a.log.launch"]


def test_a_trainer_that_saves_and_exits_in_order_was_stopped(running: Callable[..., Running]) -> None:
    run = running("save")
    run.ask("stop", why="")

    assert run.process.wait(60) == 0
    assert (run.launch().state, run.launch().cause) == ("stopped", "stopped by stepwatch")


def test_kill_ends_all_that_the_trainer_started(running: Callable[..., Running]) -> None:
    run = running("deaf")
    assert run.ask("stop").done
    before = run.beats()
    eventually(lambda: run.beats() > before)
    assert run.ask("kill").done

    assert run.process.wait(60) == -signal.SIGKILL
    assert {state(run.trainer), state(run.worker)} <= {"X", "Z"}
    assert (run.launch().state, run.launch().cause) == ("stopped", "killed by stepwatch: KLExplosion")


def refuse_attempt(run: Running) -> None:
    launch.ask(run.log, launch.Request("x", "kill", 2, "stepwatch"))


def refuse_age(run: Running) -> None:
    file = run.folder / "old"
    file.write_text(json.dumps({"id": "x", "action": "kill", "attempt": 1, "by": "stepwatch", "why": ""}))
    os.utime(file, (time.time() - 100,) * 2)
    file.rename(f"{run.log}.request")


def refuse_link(run: Running) -> None:
    refuse_age(run)
    os.utime(f"{run.log}.request")
    os.link(f"{run.log}.request", run.folder / "second")


def refuse_stranger(run: Running) -> None:
    refuse_age(run)
    os.chown(f"{run.log}.request", 12345, 12345)
    os.utime(f"{run.log}.request")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (refuse_attempt, "attempt 2 is meant, and attempt 1 runs"),
        (refuse_age, "the request is 10"),
        (refuse_link, "the request's file is a link"),
        pytest.param(
            refuse_stranger,
            "the request's file belongs to user 12345, not to root, this user or the folder's",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
    ],
)
def test_a_request_that_must_not_be_done_is_refused_with_the_reason(
    running: Callable[..., Running], asked: Callable[[Running], None], reason: str
) -> None:
    run = running()
    asked(run)
    answer = run.answer("x")

    assert not answer.done
    assert answer.reason.startswith(reason)
    assert not Path(f"{run.log}.request").exists()
    before = run.beats()
    eventually(lambda: run.beats() > before)
    assert run.launch().stopped is None


KILL = '{"id": "x", "action": "kill", "attempt": 1, "by": "", "why": ""}'
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


@pytest.mark.parametrize("make", NO_REQUESTS.values(), ids=NO_REQUESTS)
def test_what_is_not_a_request_changes_nothing(
    running: Callable[..., Running], make: Callable[[Path], None]
) -> None:
    run = running()
    request = Path(f"{run.log}.request")
    make(request)
    looks = time.monotonic() + 2
    eventually(lambda: time.monotonic() > looks or launch.answers(run.log))
    if request.is_dir():
        request.rmdir()

    assert launch.answers(run.log) == {}
    assert run.ask("stop").done


def test_secrets_and_long_words_are_not_passed_on(running: Callable[..., Running]) -> None:
    token = "hf_" + "a1B2" * 8
    answer = running().ask("stop", why=f"{token} {'x' * 3000}")

    assert answer.why.startswith("(secret) xxx")
    assert len(answer.why) == 200
