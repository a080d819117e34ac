"""Work that hangs, fails or finds too much costs nothing of what the rest finds."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from exporter.evidence.collect import Item, Result, run_all
from tests.real.waiting import eventually, in_time

HANGS = ("sh", "-c", "echo first; trap '' TERM; sleep 1000; sleep 1000")


def run(*items: Item, seconds: float = 300) -> list[Result]:
    return run_all(items, time.monotonic() + seconds)


def test_what_hangs_is_killed_at_its_limit_and_what_it_found_before_is_kept():
    begun = time.monotonic()
    hangs = Item("a", "", HANGS, 2), Item("b", "", partial(time.sleep, 1000), 2)
    program, late, rest = run(*hangs, Item("c", "", lambda: b"all", 30))
    assert (program.content, program.problem) == (b"first\n", "no answer within 2 s")
    assert (late.content, late.late) == (b"", True)
    assert late.problem.startswith("no answer within ")
    assert (rest.content, rest.problem, rest.late) == (b"all", "", False)
    assert in_time(time.monotonic() - begun, 10)


def test_what_it_started_is_killed_with_it(tmp_path):
    note = tmp_path / "pid"

    def work() -> bytes:
        child = subprocess.Popen(["sleep", "1000"])
        note.with_suffix(".new").write_text(str(child.pid))
        note.with_suffix(".new").rename(note)
        child.wait()
        return b""

    run(Item("late", "", work, 3))
    if note.exists():  # on a busy machine it may not have come so far
        eventually(lambda: not _lives(note.read_text()))


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\0"
    except OSError:
        return False


def test_all_end_together_at_the_common_limit():
    begun = time.monotonic()
    found = run(*[Item(str(number), "", HANGS, 1000) for number in range(6)], seconds=2)
    assert all(each.late for each in found)
    assert in_time(time.monotonic() - begun, 12)


def test_a_failure_is_the_reason_why_something_is_missing():
    def fails() -> bytes:
        raise FileNotFoundError(2, "No such file or directory", "x")

    def dies() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    complains = ("sh", "-c", "echo some; echo why >&2; exit 3")
    works = (fails, dies, ("no-such-program",), complains, ("false",))
    found = run(*(Item(str(number), "", work, 60) for number, work in enumerate(works)))
    assert [(each.content, each.problem) for each in found] == [
        (b"", "No such file or directory"),
        (b"", "killed by signal 9"),
        (b"", "no-such-program is not on PATH"),
        (b"some\n", "why"),
        (b"", "exit code 1"),
    ]


def test_what_is_too_much_is_cut_at_the_end_of_a_line_and_said_to_be():
    lines = b"".join(b"%d password=x\n" % number for number in range(1000))
    found = run(Item("a", "", lambda: lines, 60, 2048), Item("b", "", ("yes", "a line"), 60, 4096))
    assert [each.problem for each in found] == ["its first 2 KiB", "its first 4 KiB"]
    assert all(each.content.endswith(b"\n") for each in found)
    assert 2000 < len(found[0].content) <= 2048


def test_no_secret_leaves_the_process(tmp_path):
    secrets = "OPENAI_API_KEY=hunter2\nhttps://u:hunter2@h/\n"
    (tmp_path / "a").write_text(secrets)
    found = run(Item("a", "", secrets.encode, 60), Item("b", "", ("cat", str(tmp_path / "a")), 60))
    assert [each.content for each in found] == [b"OPENAI_API_KEY=(secret)\nhttps://(secret)@h/\n"] * 2
