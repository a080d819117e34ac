"""Runs of real processes on a console that are killed: through a pipe to ``tee``, and into a file."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.runs.cli import Settings
from exporter.runs.collector import Collector
from exporter.runs.logs.processes import Writers
from tests.real.waiting import eventually
from tests.runs.conftest import Clock, Watched, Watching
from tests.runs.scrape import Scrape

ROOT = Path(__file__).parents[3]

SHELLS = {
    "tee": '"$@" 2>&1 | tee "$LOG" >/dev/null',
    "tee -a": '"$@" 2>&1 | tee -a "$LOG" >/dev/null',
    "file": '"$@" >"$LOG" 2>&1',
    "file of a script that goes on": '"$@" >"$LOG" 2>&1; sleep 1000; :',
}
"""How a shell has a trainer write its log."""


@dataclass
class Job:
    """A shell that runs a trainer; ``pid`` is the trainer's own."""

    shell: subprocess.Popen[bytes]
    pid: int

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> None:
        """Wait until the trainer has ended."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while "\nState:\tZ" not in Path(f"/proc/{self.pid}/status").read_text():
                time.sleep(0.02)


Start = Callable[..., Job]


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Start]:
    jobs: list[Job] = []

    def start(log: Path, how: str, *command: str) -> Job:
        reported = tmp_path / f"pid{len(jobs)}"
        known = 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec "$@"'
        shell = subprocess.Popen(
            ["bash", "-c", SHELLS[how], "bash", "sh", "-c", known, reported, *command],
            cwd=ROOT,
            env={**os.environ, "LOG": str(log)},
            start_new_session=True,
        )
        while not reported.exists():
            assert shell.poll() is None
            time.sleep(0.02)
        jobs.append(Job(shell, int(reported.read_text())))
        return jobs[-1]

    yield start
    for job in jobs:
        os.killpg(job.shell.pid, signal.SIGKILL)
        job.shell.wait()


def trainer(kind: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.runs.small_trainer", kind, *more]


def until(page: Watched, true: Callable[[Scrape], bool], looks: int = 600) -> Scrape:
    """Look while real time passes, as the log's time does."""
    for _ in range(looks):
        if true(found := page.look(max(0.0, time.time() - page.clock.wall))):
            return found
        time.sleep(0.1)
    raise AssertionError(found.text)


def held(log: Path) -> bool:
    """Does any process hold the log open?"""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if descriptor.readlink() == log:
                return True
    return False


def going(found: Scrape) -> bool:
    """Is it known how far the run is, and who writes?"""
    return (found.value("rl_step", run="a") or 0) > 2 and found.value("rl_run_writer_present", run="a") == 1


@pytest.mark.parametrize("how", SHELLS)
@pytest.mark.parametrize("kind", ["trl", "verl"])
def test_a_killed_trainer_has_vanished_within_20_seconds_and_for_good(
    folder: Path, watched: Watching, start: Start, kind: str, how: str
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    job = start(log, how, *trainer(kind))
    assert until(page, going).state("a") == "running"
    job.kill()
    eventually(lambda: not held(log))  # tee ends after the trainer, and no simulated second waits for it
    page.look(1.0)
    states = [page.look(1.0).state("a") for _ in range(20)]

    assert states[-1] == "vanished"
    assert {page.look(60.0).state("a") for _ in range(20)} == {"vanished"}


@pytest.mark.parametrize("how", ["tee", "file"])
def test_a_killed_trainer_whose_worker_still_holds_the_log_has_not_vanished_before_the_worker_ends(
    folder: Path, watched: Watching, start: Start, how: str
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    job = start(log, how, *trainer("verl", "--child"))
    until(page, going)
    job.kill()
    assert {page.look(1.0).state("a") for _ in range(40)} == {"running"}
    found = re.search(rb"worker (\d+)", log.read_bytes())
    assert found
    os.kill(int(found[1]), signal.SIGKILL)
    eventually(lambda: not held(log))

    assert [page.look(1.0).state("a") for _ in range(20)][-1] == "vanished"


def test_a_trainer_that_goes_on_in_the_same_log_runs_again(
    folder: Path, watched: Watching, start: Start
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    start(log, "tee -a", *trainer("verl")).kill()
    job = start(log, "tee -a", *trainer("verl"))
    until(page, going)
    job.kill()
    eventually(lambda: not held(log))
    assert [page.look(1.0).state("a") for _ in range(20)][-1] == "vanished"
    start(log, "tee -a", *trainer("verl"))

    assert going(until(page, lambda found: found.state("a") == "running" and going(found)))


def test_a_bar_that_stays_in_the_log_of_an_unseen_writer_is_not_growth(
    folder: Path, watched: Watching
) -> None:
    page, log = watched(), folder / "a.log"
    log.write_bytes(b"step:1 - critic/score/mean:0.5\n")
    page.look()
    with log.open("ab") as file:
        file.write(b"step:2 - critic/score/mean:0.5\nTraining Progress:   2%|2         | 2/100 [00:02<01:38]")
    page.look(1.0)
    assert page.look(590.0).state("a") == "running"

    assert page.look(20.0).state("a") == "stopped"


def test_an_unfinished_last_line_of_an_old_log_raises_nothing(folder: Path, clock: Clock) -> None:
    log = folder / "a.jsonl"
    log.write_bytes(
        b'{"step":1,"data":{"critic/score/mean":0.5}}\n{"step":2,"data":{"critic/score/mean":0.1}}'
    )
    os.utime(log, (clock.wall - 60.0, clock.wall - 60.0))
    watch = Collector(Settings(path=(str(folder),)), Writers(folder / "no-proc"))
    for _ in range(3):
        clock.advance(1.0)
        watch.look()
    with watch.views() as views:
        (view,) = views

    assert (view.run.progress.step, view.run.watched) == (2, False)
