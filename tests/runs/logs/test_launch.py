"""Runs whose trainer `stepwatch run` started: their state is exact, and its cause is known."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.runs.files import launch
from exporter.runs.files.launch import SavedStep
from stepwatch.launch.keeper import descendants
from tests.runs.conftest import Watching
from tests.runs.formats.test_ends import until
from tests.runs.lines import append, console, measured, verl_json

STEPS = "".join(console(step, measured(step)) for step in range(1, 6))
ENDS = [
    ("exit 0", "finished", {"cause": "exit code 0", "exit_code": "0", "signal": ""}),
    ("exit 3", "failed", {"cause": "exit code 3", "exit_code": "3", "signal": ""}),
    ("kill -KILL $$", "failed", {"cause": "SIGKILL", "exit_code": "", "signal": "SIGKILL"}),
]


def wrapped(folder: Path, script: str, text: str = STEPS) -> subprocess.Popen[bytes]:
    """A wrapped trainer that logs steps, waits for `go`, and then ends as the script does."""
    (folder.parent / "steps").write_text(text)
    waits = f"cat {folder.parent}/steps; while [ ! -e {folder.parent}/go ]; do sleep .05; done; {script}"
    command = [sys.executable, "-m", "stepwatch", "run", "--runs", str(folder), "--name", "a", "--"]
    return subprocess.Popen([*command, "sh", "-c", waits])


def go(folder: Path) -> None:
    (folder.parent / "go").touch()


@pytest.mark.parametrize(("script", "state", "labels"), ENDS)
def test_the_state_and_its_cause_are_exact_within_two_seconds(
    folder: Path, watched: Watching, script: str, state: str, labels: dict[str, str]
) -> None:
    page, process = watched(proc=Path("/proc")), wrapped(folder, script)
    found = until(page, lambda found: found.value("rl_step", run="a") == 5)
    assert (found.state("a"), found.all("rl_run_exit_info")) == ("running", {})
    go(folder)
    process.wait(60)

    found = page.look(2.0)
    assert found.state("a") == state
    assert found.value("rl_run_exit_info", run="a", **labels) == 1


def test_its_complete_checkpoints_are_served_as_they_come_and_go(folder: Path, watched: Watching) -> None:
    page, process = watched(proc=Path("/proc")), wrapped(folder, "true")
    found = until(page, lambda found: found.value("rl_step", run="a") == 5)
    assert found.all("rl_run_checkpoint_step") == {}
    launch.write_checkpoints(
        folder / "a.log", [SavedStep("e.best/global_step_2", 2), SavedStep("global_step_4", 4)]
    )

    found = page.look(2.0)
    assert found.value("rl_run_checkpoint_step", run="a", checkpoint="e.best/global_step_2") == 2
    assert found.value("rl_run_checkpoint_step", run="a", checkpoint="global_step_4") == 4
    assert found.runs() == {"a"}
    launch.write_checkpoints(folder / "a.log", [SavedStep("global_step_4", 4)])
    go(folder)
    process.wait(60)
    found = page.look(2.0)
    assert len(found.all("rl_run_checkpoint_step")) == 1
    assert found.state("a") == "finished"


@pytest.mark.parametrize("text", ["", "loading\n"])
def test_a_trainer_that_ends_before_its_first_step_has_failed_without_a_traceback(
    folder: Path, watched: Watching, text: str
) -> None:
    page, process = watched(proc=Path("/proc")), wrapped(folder, "exit 1", text)
    until(page, lambda _: (folder / "a.log.launch").exists())
    page.discover()
    go(folder)
    process.wait(60)

    found = page.look(2.0)
    assert found.state("a") == "failed"
    assert found.value("rl_run_exit_info", run="a", cause="exit code 1", exit_code="1", signal="") == 1


def test_a_silent_trainer_whose_wrapper_lives_is_running_and_never_stopped(
    folder: Path, watched: Watching
) -> None:
    page, process = watched(), wrapped(folder, "true")
    until(page, lambda found: found.value("rl_step", run="a") == 5)

    assert {page.look(600.0).state("a") for _ in range(20)} == {"running"}
    go(folder)
    process.wait(60)
    assert page.look(2.0).state("a") == "finished"


def test_a_wrapper_that_was_killed_with_all_below_it_has_a_run_that_vanished(
    folder: Path, watched: Watching
) -> None:
    page, process = watched(), wrapped(folder, "true")
    until(page, lambda found: found.value("rl_step", run="a") == 5)
    for pid in (process.pid, *descendants(process.pid)):
        with suppress(ProcessLookupError):  # what the keeper ended meanwhile
            os.kill(pid, signal.SIGKILL)
    process.wait(60)

    found = until(page, lambda found: found.state("a") != "running")
    assert found.state("a") == "vanished"
    assert found.value("rl_run_exit_info", run="a", cause="wrapper killed", exit_code="", signal="") == 1


def test_what_the_wrapper_knows_holds_for_the_run_whose_records_are_in_another_log(
    folder: Path, watched: Watching
) -> None:
    page, process = watched(proc=Path("/proc")), wrapped(folder, "exit 3")
    (folder / "a.jsonl").write_text("".join(verl_json(step, measured(step)) for step in range(1, 6)))
    until(page, lambda found: found.value("stepwatch_duplicate_logs") == 1)
    go(folder)
    process.wait(60)

    found = page.look(2.0)
    assert (found.runs(), found.state("a")) == ({"a"}, "failed")


def test_a_log_that_goes_on_without_a_wrapper_has_the_state_of_what_writes_it(
    folder: Path, watched: Watching
) -> None:
    log, ended = folder / "a.log", time.time() - 3600
    log.write_text(STEPS)
    start = {"attempt": 1, "started": ended - 60}
    end = {"ended": ended, "exit_code": 3, "signal": "", "oom_kills": 0, "orphaned": False}
    (folder / "a.log.launch").write_text(f"{json.dumps(start)}\n{json.dumps(end)}\n")
    os.utime(log, (ended, ended))
    page = watched()
    assert page.look(1.0).value("rl_run_exit_info", run="a", cause="exit code 3") is None  # long over
    append(log, console(6, measured(6)))

    found = page.discover()
    assert (found.state("a"), found.all("rl_run_exit_info")) == ("running", {})


def test_a_pipe_in_place_of_a_launch_file_holds_nothing_up(folder: Path, watched: Watching) -> None:
    (folder / "a.log").write_text(STEPS)
    os.mkfifo(folder / "a.log.launch")

    assert watched().look(1.0).value("rl_step", run="a") == 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"started": 1.5}\n',
        b"[]\n1\n\xff\n",
        b'{"ended": 1.5}\n',
        b'{"attempt": "one", "started": 1.5}\n',
    ],
)
def test_a_damaged_launch_file_is_no_launch(folder: Path, watched: Watching, content: bytes) -> None:
    (folder / "a.log").write_text(STEPS)
    (folder / "a.log.launch").write_bytes(content)

    found = watched().look(1.0)
    assert (found.state("a"), found.all("rl_run_exit_info")) == ("running", {})


# Requests and retries

START = {"attempt": 1, "started": 1.0}
END = {"exit_code": 1, "signal": "", "oom_kills": 0, "failure": "CUDA out of memory", "orphaned": False}
REQUEST = {"request": "x", "by": "stepwatch", "why": "KLExplosion", "at": 2.0, "done": True, "reason": ""}
RETRY = {"retry": 2, "max_retries": 3, "cause": "CUDA out of memory"}


class Wrapper:
    """What a wrapper that lives has written beside a log of five steps."""

    def __init__(self, folder: Path, text: str = STEPS) -> None:
        (folder / "a.log").write_text(text)
        self._file = (folder / "a.log.launch").open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def writes(self, *lines: dict[str, object]) -> None:
        self._file.write("".join(f"{json.dumps(line)}\n" for line in lines))
        self._file.flush()

    def ends(self) -> None:
        self._file.close()


@pytest.fixture(name="wrapper")
def _wrapper(folder: Path) -> Iterator[Wrapper]:
    wrapper = Wrapper(folder)
    yield wrapper
    wrapper.ends()


@pytest.mark.parametrize(("action", "code"), [("stop", 0), ("stop", 1), ("kill", 1)])
def test_a_run_that_was_stopped_on_request_has_stopped_whatever_its_exit_code(
    watched: Watching, wrapper: Wrapper, action: str, code: int
) -> None:
    page = watched(proc=Path("/proc"))
    wrapper.writes(START, {**REQUEST, "action": action})
    assert page.look(1.0).state("a") == "running"
    wrapper.writes({**END, "ended": time.time(), "exit_code": code})
    wrapper.ends()

    found = page.look(2.0)
    assert found.state("a") == "stopped"
    cause = f"{launch.ACTIONS[action]} by stepwatch: KLExplosion"
    assert found.value("rl_run_exit_info", run="a", cause=cause, requested="true") == 1


def test_a_run_that_made_all_its_steps_before_it_was_stopped_has_finished(
    folder: Path, watched: Watching
) -> None:
    wrapper, page = Wrapper(folder, "Total training steps: 5\n" + STEPS), watched()
    wrapper.writes(START, {**REQUEST, "action": "stop"}, {**END, "ended": time.time(), "exit_code": 0})
    wrapper.ends()

    found = page.look(1.0)
    assert found.value("rl_total_steps", run="a") == 5
    assert found.state("a") == "finished"


def test_a_refused_request_changes_nothing(watched: Watching, wrapper: Wrapper) -> None:
    wrapper.writes(START, {**REQUEST, "action": "stop", "done": False, "reason": "attempt 2 is meant"})
    page = watched()
    page.look(1.0)
    wrapper.writes({**END, "ended": time.time()})
    wrapper.ends()

    found = page.look(2.0)
    assert found.state("a") == "failed"
    assert found.value("rl_run_exit_info", run="a", cause="CUDA out of memory", requested="false") == 1


def test_a_run_goes_on_while_its_retry_is_waited_for(watched: Watching, wrapper: Wrapper) -> None:
    page = watched()
    wrapper.writes(START)
    assert page.look(1.0).value("rl_run_retries_total", run="a") == 0
    wrapper.writes({**END, "ended": time.time()}, {**RETRY, "at": 1234.5})

    found = page.look(1.0)
    cause = "retry 2 of 3 after CUDA out of memory"
    assert (found.state("a"), found.all("rl_run_exit_info")) == ("running", {})
    assert found.value("rl_run_retry_info", run="a", cause=cause) == 1
    assert found.value("rl_run_retry_timestamp_seconds", run="a") == 1234.5

    wrapper.writes({"attempt": 2, "started": 3.0, "retries": 1, **RETRY, "at": 1234.5})
    found = page.look(1.0)
    assert found.value("rl_run_retry_info", run="a", cause=cause) == 1
    assert found.value("rl_run_retries_total", run="a") == 1
    assert found.all("rl_run_retry_timestamp_seconds") == {}


def test_a_run_whose_wrapper_died_while_it_waited_has_failed(watched: Watching, wrapper: Wrapper) -> None:
    page = watched()
    wrapper.writes(START)
    page.look(1.0)
    wrapper.writes({**END, "ended": time.time()}, {**RETRY, "at": time.time() + 3600})
    wrapper.ends()

    found = page.look(2.0)
    assert (found.state("a"), found.all("rl_run_retry_info")) == ("failed", {})
    assert found.value("rl_run_exit_info", run="a", cause="CUDA out of memory") == 1


def test_what_the_wrapper_says_between_attempts_is_no_record(folder: Path, watched: Watching) -> None:
    says = "stepwatch: attempt 1 ended after step 9, by CUDA out of memory. Retry 1 of 3 in 30 s.\n"
    (folder / "a.log").write_text(says + STEPS + says)

    found = watched().look(1.0)
    assert (found.value("rl_step", run="a"), found.value("rl_records_total", run="a")) == (5, 5)
    assert found.state("a") == "running"


def test_a_trainer_that_failed_before_the_first_look_ever_is_history(
    folder: Path, watched: Watching, tmp_path: Path
) -> None:
    go(folder)
    wrapped(folder, "exit 3").wait(60)
    state = tmp_path / "state"

    page = watched(proc=Path("/proc"), state_dir=state)
    found = page.discover()
    assert (found.runs(), found.value("stepwatch_dormant_runs")) == (set(), 1)

    # One that fails while the exporter is down for a restart is news, with and without a step.
    page.watch.save()
    for name, script in (("b", f"cat {folder.parent}/steps; exit 3"), ("c", "exit 3")):
        command = [sys.executable, "-m", "stepwatch", "run", "--runs", str(folder), "--name", name, "--"]
        assert subprocess.run([*command, "sh", "-c", script], check=False).returncode == 3
    found = watched(proc=Path("/proc"), state_dir=state).discover()
    assert {name: found.state(name) for name in found.runs()} == {"b": "failed", "c": "failed"}
