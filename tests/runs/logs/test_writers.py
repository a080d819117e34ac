"""Whether a process holds a log open for writing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.logs.processes import CONFIRMATIONS, Writers

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    log = tmp_path / "train.log"
    log.touch()
    return log


@pytest.fixture(name="start")
def _start(log: Path) -> Iterator[Start]:
    """Start a real process that runs this code, with the log as its argument; killed at the end."""
    started = []

    def start(code: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-c",
            f"import sys, time\n{code}\nprint('ready', flush=True)\ntime.sleep(60)",
            log,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def looked(holders: Writers, log: Path, times: int, since: float = 0.0) -> None:
    """Look once a second."""
    for second in range(times):
        holders.look([log], since + second)


def test_a_writer_whose_file_another_took_the_place_of_is_gone(log: Path, start: Start) -> None:
    start("file = open(sys.argv[1], 'a')")
    holders = Writers()
    looked(holders, log, CONFIRMATIONS)
    log.rename(log.with_suffix(".log.1"))
    log.touch()
    looked(holders, log, 1, since=100.0)

    assert holders.of(log).present() is False


def test_one_of_two_writers_that_ends_leaves_the_other(log: Path, start: Start) -> None:
    first, second = start("file = open(sys.argv[1], 'a')"), start("file = open(sys.argv[1], 'a')")
    holders = Writers()
    looked(holders, log, CONFIRMATIONS)
    for process in (first, second):
        assert holders.of(log).present() is True
        process.kill()
        process.wait()
        looked(holders, log, 1, since=100.0)

    assert holders.of(log).present() is False


def test_a_writer_through_a_link_counts(log: Path, start: Start) -> None:
    link = log.with_name("link.log")
    link.symlink_to(log)
    start("file = open(sys.argv[1], 'a')")
    holders = Writers()
    looked(holders, link, CONFIRMATIONS)

    assert holders.of(link).present() is True
