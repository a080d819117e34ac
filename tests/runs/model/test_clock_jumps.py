"""The machine's clock is set by a day, forward or back, while runs are followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runs.conftest import Clock, Watched, Watching
from tests.runs.lines import append, measured, verl_json
from tests.runs.scrape import Scrape

DAY = 24 * 3600.0
both_ways = pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])


def log_step(path: Path, clock: Clock, step: int) -> None:
    """The file system's clock is the machine's."""
    append(path, verl_json(step, measured(step)))
    os.utime(path, (clock.wall, clock.wall))


def follow(page: Watched, log: Path, first: int, last: int) -> Scrape:
    """Steps come every ten seconds."""
    for step in range(first, last + 1):
        page.clock.advance(10.0)
        log_step(log, page.clock, step)
        found = page.look()
    return found


def begin(page: Watched, log: Path, last: int) -> None:
    """A run is watched from its first step to this one."""
    log_step(log, page.clock, 1)
    page.look()
    follow(page, log, 2, last)


@both_ways
def test_a_run_goes_on_with_its_pace_and_its_last_step_is_never_ahead(
    folder: Path, watched: Watching, clock: Clock, jump: float
) -> None:
    page, log = watched(), folder / "a.jsonl"
    begin(page, log, 20)
    clock.wall += jump
    assert page.look(1.0).state("a") == "running"
    found = follow(page, log, 21, 30)

    assert found.state("a") == "running"
    assert found.value("rl_records_total", run="a") == 30
    assert found.value("rl_resumes_total", run="a") == 0
    assert found.value("rl_last_step_timestamp_seconds", run="a") == pytest.approx(clock.wall, abs=1.0)
    assert 10.0 <= (found.value("rl_step_interval_typical_seconds", run="a") or 0.0) <= 40.0


@both_ways
def test_silence_is_noticed_as_soon_as_ever(
    folder: Path, watched: Watching, clock: Clock, jump: float
) -> None:
    page, log = watched(), folder / "a.jsonl"
    begin(page, log, 20)
    clock.wall += jump

    assert page.look(590.0).state("a") == "running"
    assert page.look(20.0).state("a") == "stopped"


@both_ways
def test_an_exporter_that_starts_after_the_jump_shows_what_still_goes_on(
    folder: Path, tmp_path: Path, watched: Watching, clock: Clock, jump: float
) -> None:
    page, log = watched(state_dir=tmp_path / "state"), folder / "a.jsonl"
    begin(page, log, 5)
    page.watch.save()
    clock.wall += jump
    page = watched(state_dir=tmp_path / "state")
    page.look()
    found = follow(page, log, 6, 7)
    found = page.discover()

    assert found.state("a") == "running"
    assert found.value("rl_records_total", run="a") == 7
    assert found.value("rl_last_step_timestamp_seconds", run="a") == pytest.approx(clock.wall, abs=10.0)
