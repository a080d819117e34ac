"""The exporter, or the whole machine, stands still for a while; what is found then is dated as it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.runs.model.run import Clock as RunClock
from exporter.runs.model.run import Options, Run
from exporter.runs.signals.record import Record
from tests.runs.conftest import Clock, Watching
from tests.runs.formats.test_live_formats import Trainer, _trainer  # noqa: F401  (a fixture)
from tests.runs.lines import append, measured, verl_json
from tests.runs.scrape import Scrape
from tests.runs.test_main import Exporter, Start, _start, has  # noqa: F401  (a fixture)

LAST = "rl_last_step_timestamp_seconds"


def looks_stalled(found: Scrape, run: str, now: float, silence: float = 600.0) -> bool:
    """What the alert Stalled asks for, but for the 15 s that it waits."""
    return found.state(run) == "running" and now - (found.value(LAST, run=run) or 0.0) > silence + 1.0


def events(folder: Path, trainer: Trainer, clock: Clock, step: int) -> None:
    trainer.logs(step, at=clock.wall)
    (file,) = (folder / "a").iterdir()
    os.utime(file, (clock.wall, clock.wall))


def lines(folder: Path, trainer: Trainer, clock: Clock, step: int) -> None:
    log = folder / "a.jsonl"
    append(log, verl_json(step, measured(step)))
    os.utime(log, (clock.wall, clock.wall))


@pytest.mark.parametrize("logs", [events, lines])
@pytest.mark.slow
def test_steps_that_are_found_two_minutes_late_are_as_old_as_they_are(
    folder: Path, watched: Watching, clock: Clock, trainer: Trainer, logs: Callable[..., None]
) -> None:
    page = watched()
    if logs is events:
        trainer.begins(folder / "a")
    for step in range(1, 20):
        logs(folder, trainer, clock, step)
        found = page.look(2.0)
    logs(folder, trainer, clock, 20)
    written = clock.wall
    found = page.look(120.0)  # the exporter stood still

    assert found.value("rl_step", run="a") == 20
    assert found.value(LAST, run="a") == pytest.approx(written, abs=0.1)
    assert found.value("rl_step_interval_typical_seconds", run="a") == pytest.approx(2.0)
    states = []
    while clock.wall < written + 700.0:
        found = page.look(5.0)
        assert not looks_stalled(found, "a", clock.wall)
        states.append(found.state("a"))
    assert (states[0], states[-1]) == ("running", "stopped")


def test_the_time_of_a_file_that_someone_set_makes_no_log_older_than_its_last_look(
    folder: Path, watched: Watching, clock: Clock
) -> None:
    page, log = watched(), folder / "a.jsonl"
    for step in range(1, 10):
        append(log, verl_json(step, measured(step)))
        os.utime(log, (clock.wall - 3600.0, clock.wall - 3600.0))  # as rsync does
        found = page.look(5.0)

    assert found.state("a") == "running"
    assert clock.wall - (found.value(LAST, run="a") or 0.0) == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("asleep", [7200.0, -7200.0])
@pytest.mark.slow
def test_a_machine_that_slept_or_whose_clock_was_set_has_no_run_look_silent(
    folder: Path, watched: Watching, clock: Clock, trainer: Trainer, asleep: float
) -> None:
    page = watched()
    trainer.begins(folder / "a")
    for step in range(1, 20):
        events(folder, trainer, clock, step)
        page.look(2.0)
    clock.wall += asleep  # no steady time passes
    found = page.look(1.0)
    assert clock.wall - (found.value(LAST, run="a") or 0.0) == pytest.approx(3.0, abs=0.1)
    states = []
    for _ in range(130):
        found = page.look(5.0)
        assert not looks_stalled(found, "a", clock.wall)
        states.append(found.state("a"))

    assert (states[0], states[-1]) == ("running", "stopped")


def test_a_suspended_exporter_takes_no_finished_run_for_a_hanging_one(
    folder: Path, start: Start, trainer: Trainer
) -> None:
    silence = 12.0
    trainer.begins(folder / "a")
    (file,) = (folder / "a").iterdir()

    def log(step: int) -> float:
        """Open, append and close, as PyTorch's writer does; returns when."""
        trainer.goes_on(file)
        trainer.logs(step, at=time.time())
        trainer.ends()
        return time.time()

    log(1)
    exporter = start("--path", folder, "--silence", silence, "--silence-intervals", 0.01)
    exporter.until(has("a"))
    log(2)
    exporter.until(lambda found: found.value("rl_step", run="a") == 2)
    exporter.process.send_signal(signal.SIGSTOP)
    written = log(3)
    time.sleep(0.75 * silence)
    exporter.process.send_signal(signal.SIGCONT)
    exporter.until(lambda found: found.value("rl_step", run="a") == 3)

    def stopped(found: Scrape) -> bool:
        assert not looks_stalled(found, "a", time.time(), silence + 2.0)
        return found.state("a") == "stopped"

    exporter.until(stopped)
    assert time.time() - written >= silence


@pytest.mark.parametrize(
    ("reported", "late", "moved"),
    [
        (None, 0.0, 100.0),
        (None, 120.0, -20.0),
        (-30.0, 120.0, 70.0),  # a server tells when it was logged
        (-3600.0, 120.0, -20.0),  # its clock is behind ours
        (3600.0, 120.0, 100.0),
    ],
)
def test_a_record_was_logged_when_it_says_but_not_before_the_last_look(
    reported: float | None, late: float, moved: float
) -> None:
    now = 1_000_000.0
    clock = RunClock(now, 100.0, live=True, late=late)
    run = Run("mlflow", "", Options())
    run.take(Record(1, {"reward": 0.5}, None if reported is None else now + reported), clock)

    assert run.moved == moved
