"""Work that hangs, fails or finds too much costs nothing of what the rest finds."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.evidence.bounded import Item, Task, Work, run_all
from tests.real.waiting import eventually, in_time

PLENTY = 1 << 20


class Found(NamedTuple):
    contents: dict[str, bytes]
    items: list
    problem: str
    late: bool


def run(folder: Path, *tasks: Task, seconds: float = 300) -> Sequence[Found]:
    with run_all(tasks, folder, time.monotonic() + seconds) as results:
        return [
            Found({item.name: item.content() for item in each.items}, each.items, each.problem, each.late)
            for each in results
        ]


def finds(*items: Item) -> Work:
    return lambda: iter(items)


def hangs() -> Iterator[Item]:
    yield Item("a", "there", b"first")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def test_what_hangs_is_killed_at_its_limit_and_what_it_found_before_is_kept(tmp_path):
    begun = time.monotonic()
    well = Task("well", finds(Item("b", "here", b"all")), 30, PLENTY)
    late, rest = run(tmp_path, Task("late", hangs, 2, PLENTY), well)
    assert late.contents == {"a": b"first"}
    assert late.late
    assert late.problem.startswith("no answer within ")
    assert (rest.contents, rest.problem, rest.late) == ({"b": b"all"}, "", False)
    assert in_time(time.monotonic() - begun, 10)


def test_what_it_started_is_killed_with_it(tmp_path):
    note = tmp_path / "pid"

    def work() -> Iterator[Item]:
        child = subprocess.Popen(["sleep", "1000"])
        note.with_suffix(".new").write_text(str(child.pid))
        note.with_suffix(".new").rename(note)
        child.wait()
        yield Item("a", "b")

    run(tmp_path, Task("late", work, 3, PLENTY))
    if note.exists():  # on a busy machine it may not have come so far
        eventually(lambda: not _lives(note.read_text()))


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\0"
    except OSError:
        return False


def test_all_end_together_at_the_common_limit(tmp_path):
    begun = time.monotonic()
    found = run(tmp_path, *[Task(str(number), hangs, 1000, PLENTY) for number in range(6)], seconds=2)
    assert all(each.late for each in found)
    assert in_time(time.monotonic() - begun, 12)


def test_a_failure_is_the_reason_why_something_is_missing(tmp_path):
    def fails() -> Iterator[Item]:
        yield Item("a", "b", b"first")
        raise FileNotFoundError(2, "No such file or directory", "x")

    def dies() -> Iterator[Item]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield Item("a", "b")

    failed, died = run(tmp_path, Task("fails", fails, 60, PLENTY), Task("dies", dies, 60, PLENTY))
    assert failed.contents == {"a": b"first"}
    assert failed.problem == "FileNotFoundError: No such file or directory"
    assert (died.contents, died.problem) == ({}, "killed by signal 9")


def test_what_is_too_much_is_cut_and_said_to_be(tmp_path):
    work = finds(Item("a", "b", b"x" * 700), Item("c", "d", b"y" * 700))
    (found,) = run(tmp_path, Task("a", work, 60, 1000))
    assert [item.size for item in found.items] == [700, 300]
    assert found.items[1].missing == "the first 300 of 700 bytes, because of the size limit"


def test_a_disk_that_is_full_is_a_reason_as_well(tmp_path):
    def writes() -> Iterator[Item]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        yield Item("a", "b", b"x" * 1000)
        yield Item("c", "d", b"x" * 100000)

    (found,) = run(tmp_path, Task("a", writes, 60, PLENTY))
    assert list(found.contents) == ["a"]
    assert found.problem == "its result could not be stored: File too large"


def test_nothing_is_left_in_the_folder(tmp_path):
    run(tmp_path, Task("a", finds(Item("a", "b", b"x")), 60, PLENTY))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secret", ["OPENAI_API_KEY=hunter2", "https://u:hunter2@h/"])
def test_no_secret_leaves_the_process(tmp_path, secret):
    (found,) = run(tmp_path, Task("a", finds(Item("a", secret, secret.encode(), secret)), 60, PLENTY))
    (item,) = found.items
    assert "hunter2" not in f"{item.source} {item.missing} {found.contents}"
