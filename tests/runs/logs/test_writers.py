"""Whether a process holds a log open for writing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.logs import processes as process_files
from exporter.runs.logs.processes import CONFIRMATIONS, Writers
from tests.runs.fake_proc import pretend

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
        assert process.stdout is not None
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


def test_a_writer_is_confirmed_after_several_looks(log: Path, start: Start) -> None:
    start("file = open(sys.argv[1], 'a')")
    holders = Writers()
    looked(holders, log, CONFIRMATIONS - 1)
    assert holders.of(log).present() is None
    looked(holders, log, 1, since=CONFIRMATIONS)

    assert holders.of(log).present() is True


@pytest.mark.parametrize("mode", ["w", "a", "r+", "wb"])
def test_a_writer_counts_however_it_opened_the_file(log: Path, start: Start, mode: str) -> None:
    start(f"file = open(sys.argv[1], {mode!r})")
    holders = Writers()
    looked(holders, log, CONFIRMATIONS)

    assert holders.of(log).present() is True


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


def test_our_own_open_files_do_not_count(log: Path) -> None:
    holders = Writers()
    with log.open("a"):
        looked(holders, log, CONFIRMATIONS)

    assert holders.of(log).present() is None


# a /proc of our own


@pytest.mark.parametrize(
    ("flags", "present"), [("0100001", True), ("0102002", True), ("0100000", None), (None, None)]
)
def test_the_flags_tell_writers_from_readers(
    log: Path, tmp_path: Path, flags: str | None, present: bool | None
) -> None:
    proc = tmp_path / "proc"
    pretend(proc, 7, log, flags)
    (proc / "meminfo").touch()
    (proc / "8").mkdir()
    holders = Writers(proc)
    looked(holders, log, CONFIRMATIONS)

    assert holders.of(log).present() is present


def test_all_processes_are_searched_only_now_and_then(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders, searches = Writers(tmp_path), list[float]()
    monkeypatch.setattr(process_files, "pids", lambda _: searches.append(1.0) or [])
    looked(holders, log, 11)

    assert len(searches) == 3


def test_a_forgotten_file_is_unknown_again(log: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    pretend(proc, 7, log, "0100001")
    holders = Writers(proc)
    looked(holders, log, CONFIRMATIONS)
    holders.forget(log)

    assert holders.of(log).present() is None
