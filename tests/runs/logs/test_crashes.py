"""A trainer that fails, or is killed, before its first step."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.runs.logs.processes import Writers
from tests.runs.conftest import Clock, Watched, Watching
from tests.runs.fake_proc import pretend
from tests.runs.formats.test_ends import SHELLS, Job, Start, _start, until  # noqa: F401  (a fixture)
from tests.runs.lines import append, console, measured, verl_json
from tests.runs.logs.test_unstarted import WAITS
from tests.runs.scrape import Scrape

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
  File "train.py", line 2, in main
    raise ValueError("out of memory on device 0")
ValueError: out of memory on device 0
"""
TOTAL = "(TaskRunner pid=42) Total training steps: 100\n"

BAR = "\r  0%|          | 0/80 [00:00<?, ?it/s]"

LOADER = """
import sys, time
from pathlib import Path

def load():
    try:
        raise KeyError("cache")
    except KeyError as missing:
        raise RuntimeError("Engine core initialization failed") from missing

print(sys.argv[1], flush=True)
while not Path(sys.argv[2]).exists():
    print("loading weights", flush=True)
    time.sleep(0.2)
exec(sys.argv[3])
"""
ENDS = {
    "raises": "load()",
    "raises, and libraries say good-bye": "import atexit; atexit.register(print, 'bye\\n' * 40); load()",
    "exits": "print('done')",
    "is killed": "import os; os.kill(os.getpid(), 9)",
}


def loader(start: Start, log: Path, how: str, end: str, says: str = "loading") -> tuple[Job, Path]:
    """A real process that loads until the file is made that is returned, and then ends in that way."""
    ready = log.parent.parent / "ready"
    return start(log, how, sys.executable, "-c", LOADER, says, str(ready), ENDS[end]), ready


def confirmed(page: Watched, log: Path) -> Callable[[Scrape], bool]:
    return lambda _: bool(page.watch.writers.of(log).present())


@pytest.mark.parametrize("how", SHELLS)
@pytest.mark.parametrize("end", ["raises", "raises, and libraries say good-bye"])
def test_a_loader_that_raises_has_failed_within_20_seconds_and_for_good(
    folder: Path, watched: Watching, start: Start, how: str, end: str
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    job, ready = loader(start, log, how, end)
    assert until(page, confirmed(page, log)).runs() == set()
    ready.touch()
    job.ended()
    page.look(2.0)
    found = [page.look(1.0) for _ in range(20)][-1]

    assert found.state("a") == "failed"
    assert (found.value("rl_step", run="a"), found.value("rl_run_writer_present", run="a")) == (None, 0)
    assert {page.look(60.0).state("a") for _ in range(40)} == {"failed"}


@pytest.mark.parametrize(
    ("end", "says"), [("exits", "loading"), ("is killed", "Map: 100%|###| 9/9 [00:01<00:00]")]
)
def test_a_program_that_ends_without_an_error_and_is_not_known_to_be_a_trainer_raises_nothing(
    folder: Path, watched: Watching, start: Start, end: str, says: str
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    job, ready = loader(start, log, "file", end, says)
    until(page, confirmed(page, log))
    ready.touch()
    job.ended()
    for _ in range(60):
        found = page.look(60.0)
        assert (found.runs(), found.all(WAITS)) == (set(), {})


def test_a_killed_loader_that_reported_how_many_steps_it_will_make_has_vanished(
    folder: Path, watched: Watching, start: Start
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    job, ready = loader(start, log, "tee", "is killed", TOTAL)
    until(page, confirmed(page, log))
    ready.touch()
    job.ended()
    page.look(2.0)
    found = [page.look(1.0) for _ in range(20)][-1]

    assert (found.state("a"), found.value("rl_total_steps", run="a")) == ("vanished", 100)


# in the test's time, with a /proc of our own


@dataclass
class Machine:
    """Processes that hold files open, and a watch that sees them."""

    page: Watched
    proc: Path
    count: int = 0

    def opens(self, log: Path, process: int = 0) -> int:
        """A process begins to write to a file; the number of a process that is there adds a file to it."""
        log.touch()
        if process:
            self._adds(process, log)
            return process
        self.count += 1
        pretend(self.proc, self.count, log, "0100001")
        return self.count

    def _adds(self, process: int, log: Path) -> None:
        pretend(self.proc / "new", process, log, "0100001")
        for part in ("fd", "fdinfo"):
            (self.proc / "new" / str(process) / part / "3").rename(self.proc / str(process) / part / "4")
        shutil.rmtree(self.proc / "new")

    def ends(self, process: int) -> None:
        shutil.rmtree(self.proc / str(process))

    def looks(self, count: int = 8, seconds: float = 2.0) -> Scrape:
        for _ in range(count):
            found = self.page.look(seconds)
        return found

    def crashes(self, log: Path, process: int, text: str = TRACEBACK) -> Scrape:
        """The process writes that and ends; the page some time later."""
        append(log, text)
        self.looks(1)
        self.ends(process)
        return self.looks(12)


@pytest.fixture(name="machine")
def _machine(tmp_path: Path, watched: Watching) -> Machine:
    proc = tmp_path / "proc"
    proc.mkdir()
    return Machine(watched(proc=proc), proc)


def loads(machine: Machine, log: Path, text: str = "loading\n") -> int:
    """A process that loads, and was seen."""
    log.parent.mkdir(exist_ok=True)
    process = machine.opens(log)
    append(log, text)
    machine.looks()
    return process


def test_a_trainer_that_is_started_again_in_the_same_log_runs(folder: Path, machine: Machine) -> None:
    log = folder / "a.log"
    assert machine.crashes(log, loads(machine, log)).state("a") == "failed"
    machine.opens(log)
    append(log, "loading\n")
    assert machine.looks().state("a") is None
    append(log, console(1, measured(1)))

    found = machine.looks()
    assert (found.state("a"), found.value("rl_step", run="a")) == ("running", 1)


def test_an_error_that_was_caught_is_no_end(folder: Path, machine: Machine) -> None:
    log = folder / "a.log"
    process = loads(machine, log, TRACEBACK)
    for _ in range(10):
        append(log, "loading\n")
        machine.looks(1, seconds=10.0)

    assert machine.crashes(log, process, "done\n").runs() == set()


def behind(prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in TRACEBACK.splitlines())


@pytest.mark.parametrize(
    ("first", "text", "state"),
    [
        # its first words: during imports, a log that a shell has opened stays empty
        ("", TRACEBACK, "failed"),
        ("loading\n", behind("(TaskRunner pid=7) "), "failed"),
        ("loading\n", behind("\x1b[36m(TaskRunner pid=7)\x1b[0m "), "failed"),
        ("loading\n", behind("[rank0]: "), "failed"),
        ("loading\n", behind(BAR), "failed"),
        ("loading\n", '{"output": "Traceback (most recent call last):"}\n', None),
        ("loading\n", f"    {TRACEBACK}", None),
    ],
)
def test_errors_count_behind_what_launchers_put_before_them_unless_they_are_quoted(
    folder: Path, machine: Machine, first: str, text: str, state: str | None
) -> None:
    log = folder / "a.log"
    found = machine.crashes(log, loads(machine, log, first), text)

    assert (found.state("a"), found.runs()) == (state, {"a"} if state else set())


@pytest.mark.parametrize("own", [True, False], ids=["of one process", "of one name"])
def test_the_standard_error_of_a_run_is_no_run(folder: Path, machine: Machine, own: bool) -> None:
    log, errors = folder / ("b.jsonl" if own else "a.jsonl"), folder / "a.err"
    process = machine.opens(log)
    other = machine.opens(errors, process if own else 0)
    append(errors, "a warning\n")
    for step in range(1, 9):
        append(log, verl_json(step, measured(step)))
        machine.looks(1)
    append(errors, TRACEBACK)
    machine.looks(1)
    for each in {process, other}:
        machine.ends(each)

    assert machine.looks(12).runs() == {log.stem}


def test_the_console_beside_event_files_in_the_run_s_own_folder_is_no_run(
    folder: Path, machine: Machine
) -> None:
    log, console_log = folder / "ppo/metrics.jsonl", folder / "ppo/console.txt"
    process = loads(machine, console_log)
    for step in range(1, 9):
        append(log, verl_json(step, measured(step)))
        machine.looks(1)

    assert machine.crashes(console_log, process).runs() == {"ppo"}


@pytest.mark.parametrize("place", ["a.log", "a/train.log"])
@pytest.mark.parametrize("healthy", ["b.jsonl", "b/train.jsonl"])
def test_a_healthy_run_of_another_process_hides_no_crash(
    folder: Path, machine: Machine, place: str, healthy: str
) -> None:
    log, other = folder / place, folder / healthy
    other.parent.mkdir(exist_ok=True)
    machine.opens(other)
    process = loads(machine, log)
    for step in range(1, 9):
        append(other, verl_json(step, measured(step)))
        machine.looks(1)
    found = machine.crashes(log, process)

    assert {run: found.state(run) for run in found.runs()} == {"a": "failed", "b": "running"}


def test_a_run_keeps_its_name_beside_a_text_that_failed(folder: Path, machine: Machine) -> None:
    for step in range(1, 9):
        append(folder / "ppo.jsonl", verl_json(step, measured(step)))
        machine.looks(1)
    log = folder / "ppo/train.log"

    assert machine.crashes(log, loads(machine, log)).runs() == {"ppo", "ppo/train.log"}


@pytest.mark.parametrize("text", [TRACEBACK, f"{TOTAL}{TRACEBACK}", "torch ChildFailedError\n"])
@pytest.mark.slow
def test_a_text_that_had_ended_before_the_exporter_looked_raises_nothing(
    folder: Path, machine: Machine, text: str
) -> None:
    append(folder / "a.log", text)

    assert machine.looks(400).runs() == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [(TRACEBACK, None), (f"{TOTAL}{TRACEBACK}", "failed"), (f"{TRACEBACK}ChildFailedError\n", "failed")],
)
def test_without_a_writer_that_can_be_seen_only_a_trainer_fails(
    folder: Path, machine: Machine, text: str, expected: str | None
) -> None:
    log = folder / "a.log"
    append(log, "loading\n")
    machine.looks()
    append(log, text)

    assert machine.looks(40).state("a") == expected


@pytest.mark.parametrize("meanwhile", ["", TRACEBACK], ids=["before", "meanwhile"])
def test_a_restarted_exporter_knows_of_a_crash(
    folder: Path, tmp_path: Path, watched: Watching, clock: Clock, meanwhile: str
) -> None:
    proc, states, log = tmp_path / "proc", tmp_path / "state", folder / "a.log"
    proc.mkdir()
    machine = Machine(watched(proc=proc, state_dir=states), proc)
    process = loads(machine, log)
    if not meanwhile:
        assert machine.crashes(log, process).state("a") == "failed"
    machine.page.watch.save()
    append(log, meanwhile)
    if meanwhile:
        machine.ends(process)
    again = Machine(watched(proc=proc, state_dir=states), proc)

    assert isinstance(again.page.watch.writers, Writers)
    assert again.looks(12).state("a") == "failed"


def test_logs_that_no_one_is_seen_to_write_keep_no_killed_run_alive(folder: Path, machine: Machine) -> None:
    log, lines = folder / "ppo/train.log", folder / "ppo/metrics.jsonl"
    process = loads(machine, log, TOTAL)
    for step in range(1, 12):
        append(log, console(step, measured(step)))
        append(lines, verl_json(step, measured(step)))
        found = machine.looks(1)
    assert (found.runs(), found.state("ppo")) == ({"ppo"}, "running")
    assert found.value("stepwatch_duplicate_logs") == 1
    machine.ends(process)
    assert machine.looks(10).state("ppo") == "vanished"

    append(lines, verl_json(12, measured(12)))
    assert machine.looks(1).state("ppo") == "running"
