"""What dies comes back: parts by supervisord, supervisord by the guardian, the guardian by supervisord."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwatch.deploy.native import guardian, supervisord
from stepwatch.deploy.native.stack import Part
from stepwatch.system import http_client, processes
from tests.native.conftest import StandInStack
from tests.native.installation import python_module
from tests.real.disk import fill, small_disk
from tests.real.waiting import eventually, in_time

PROMISED_SECONDS = 15


def pids(stack: StandInStack) -> dict[str, int]:
    """The process of each part, none while no supervisord answers."""
    with supervisord.connected(stack.place) as server:
        reports = server.reports() if server else {}
    return {name: report.pid for name, report in reports.items() if report.pid}


def supervisor(stack: StandInStack) -> int:
    return int((stack.place.folder / "supervisord.pid").read_text() or 0)  # empty while it is written


def seconds_until(fact: Callable[[], object]) -> float:
    begun = time.monotonic()
    eventually(fact)
    return time.monotonic() - begun


def test_a_killed_supervisor_is_replaced_and_supervises_again(stack: StandInStack) -> None:
    one, other = stack.part("one"), stack.part("other")
    stack.up(one, other)
    old, before = supervisor(stack), pids(stack)

    os.kill(old, signal.SIGKILL)

    took = seconds_until(lambda: pids(stack).keys() == before.keys() and stack.status() == 0)
    assert in_time(took, PROMISED_SECONDS)
    assert supervisor(stack) != old
    assert re.search(
        r"supervisord was killed or crashed at [\d-]+ [\d:]+; the guardian restarted all parts\.",
        stack.words,
    )
    assert set(before.values()).isdisjoint(process.pid for process in processes.marked(stack.place.mark))
    again = pids(stack)
    os.kill(again["one"], signal.SIGKILL)
    eventually(lambda: pids(stack).get("one") not in (None, again["one"]) and stack.status() == 0)
    assert "supervisord is gone" in stack.place.log("guardian").read_text()


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_supervisor_that_is_killed_while_the_disk_is_full_is_replaced(kind: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "state", kind) as folder:
        stack = StandInStack(folder)
        try:
            assert stack.up(Part("one", ("sleep", "infinity"), "nothing much")) == 0
            old, before = supervisor(stack), pids(stack)
            fill(folder / "ballast")

            os.kill(old, signal.SIGKILL)

            took = seconds_until(lambda: pids(stack).keys() == before.keys())
            assert in_time(took, PROMISED_SECONDS)
            assert set(before.values()).isdisjoint(pids(stack).values())
            assert not (folder / ".changing.new").exists()
        finally:
            (folder / "ballast").unlink(missing_ok=True)
            stack.down()


def test_a_killed_guardian_comes_back_and_guards_again(stack: StandInStack) -> None:
    stack.up(stack.part("one"))
    for _ in range(2):
        before, old = pids(stack), supervisor(stack)
        os.kill(before["guardian"], signal.SIGKILL)
        eventually(lambda before=before: pids(stack).get("guardian") not in (None, before["guardian"]))
        assert pids(stack)["one"] == before["one"]

        os.kill(old, signal.SIGKILL)
        eventually(lambda old=old: supervisor(stack) != old and stack.status() == 0)


def test_a_supervisor_that_hangs_is_replaced(stack: StandInStack) -> None:
    stack.up(stack.part("one"))
    old = supervisor(stack)

    os.kill(old, signal.SIGSTOP)

    assert stack.status() == 1
    assert "supervisord does not answer. The guardian restarts it" in stack.words
    took = seconds_until(lambda: supervisor(stack) != old and stack.status() == 0)
    assert in_time(took, 40)
    assert "supervisord had not answered for 20 s and was killed at " in stack.words


def test_a_part_outlives_the_death_of_all_that_supervises_and_goes_on_logging(stack: StandInStack) -> None:
    part = stack.part("one")
    stack.up(part)
    guard = pids(stack)["guardian"]
    os.kill(guard, signal.SIGSTOP)
    os.kill(supervisor(stack), signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    log = stack.place.log("one")

    lines = log.read_text().count("lives")
    eventually(lambda: log.read_text().count("lives") > lines + 2)

    assert part.web
    assert http_client.read(part.web.page(part.web.ready)) is not None


@pytest.mark.parametrize("dying", ["supervisor", "guardian"])
def test_what_was_taken_down_stays_down_anyone_who_dies_at_that_moment(
    stack: StandInStack, dying: str
) -> None:
    stack.up(stack.part("one"))
    os.kill(supervisor(stack) if dying == "supervisor" else pids(stack)["guardian"], signal.SIGKILL)

    assert stack.down() == 0

    time.sleep(3)  # a guardian looks twice a second
    assert processes.marked(stack.place.mark) == []


def test_up_and_the_guardian_end_with_one_supervisor_between_them(stack: StandInStack) -> None:
    part = stack.part("one")
    stack.up(part)
    os.kill(supervisor(stack), signal.SIGKILL)

    assert stack.up(part) == 0

    time.sleep(3)
    running = [python_module(process.pid) for process in processes.marked(stack.place.mark)]
    assert running.count("supervisor.supervisord") == 1
    assert running.count("stepwatch.deploy.native.guardian") == 1
    assert stack.status() == 0


def test_a_suspended_part_is_named_by_status(stack: StandInStack) -> None:
    stack.up(stack.part("one"))
    pid = pids(stack)["one"]
    os.kill(pid, signal.SIGSTOP)

    assert stack.status() == 1
    assert f"A signal suspended one. Fix: kill -CONT {pid}" in stack.words
    assert in_time(seconds_until(lambda: stack.down() == 0), 30)  # and does not wait for it to be killed


def test_a_log_is_bounded_and_loses_hardly_a_line_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    count = 5_000
    script = f"import time\nfor number in range({count}): print(number, flush=True); time.sleep(0.0002)"
    with log.open("ab") as output, subprocess.Popen([sys.executable, "-c", script], stdout=output) as writer:
        while writer.poll() is None:
            guardian.rotate(log, limit=3_000)
            time.sleep(0.01)

    logs = [tmp_path / f"part.log.{number}" for number in (3, 2, 1)]
    lines = [line for part in (*logs, log) if part.exists() for line in part.read_text().splitlines()]
    kept = [int(line) for line in lines if line.isdigit()]
    assert {path.name for path in tmp_path.iterdir()} <= {"part.log", *(part.name for part in logs)}
    assert kept[-1] == count - 1
    assert len(kept) < count
    missing = set(range(kept[1], count)) - set(kept)
    assert len(missing) < 0.01 * len(kept)  # those between the copy and the truncation
    assert "\0" not in "".join(lines)
