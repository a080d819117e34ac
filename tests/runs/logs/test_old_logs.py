"""Logs of runs that ended long ago: they cost nothing until they change, and archives are read once."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.runs.conftest import Clock, Watching
from tests.runs.lines import append, console, measured, verl_json

DAY = 24 * 3600.0
OLD = 10_000


@pytest.fixture(name="touched")
def _touched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each call of the file system was made."""
    touched: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        works = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            touched[name] += 1
            return works(*args, **options)

        monkeypatch.setattr(owner, name, call)

    for owner, name in (
        (Path, "stat"),
        (Path, "open"),
        (Path, "exists"),
        (Path, "read_bytes"),
        (os, "scandir"),
        (os, "stat"),
        (os, "open"),
    ):
        count(owner, name)
    return touched


def write_old(folder: Path, clock: Clock) -> None:
    for number in range(OLD):
        path = folder / f"old/{number}.jsonl"
        path.write_text(verl_json(1, {"critic/score/mean": number / OLD}))
        os.utime(path, (clock.wall - 3 * DAY, clock.wall - 3 * DAY))


@pytest.mark.slow
def test_ten_thousand_old_runs_are_never_read_and_cost_a_look_nothing(
    folder: Path, tmp_path: Path, watched: Watching, clock: Clock, touched: Counter[str]
) -> None:
    (folder / "old").mkdir()
    write_old(folder, clock)
    live = folder / "live.jsonl"
    append(live, verl_json(1, measured(1)))
    page = watched(state_dir=tmp_path / "state")
    found = page.look()
    assert found.runs() == {"live"}
    assert found.value("stepwatch_files", kind="old") == OLD
    assert found.value("stepwatch_bytes_read_total") == live.stat().st_size

    touched.clear()
    append(live, verl_json(2, measured(2)))
    ours = touched.copy()
    assert page.look(0.5).value("rl_step", run="live") == 2
    assert (touched - ours).total() < 20

    touched.clear()
    page.discover()
    assert (touched["read_bytes"], touched["open"]) == (0, 0)

    append(folder / "old/77.jsonl", verl_json(2, measured(2)))
    found = page.discover()
    assert found.runs() == {"live", "old/77"}
    assert found.value("rl_records_total", run="old/77") == 2
    assert found.value("stepwatch_files", kind="old") == OLD - 1


def test_searches_that_wait_for_a_slow_disk_are_rare(
    folder: Path, watched: Watching, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.5 s is 5 % of 10 s."""
    scan = os.scandir

    def slow(path: str) -> Any:
        clock.advance(0.5)
        return scan(path)

    monkeypatch.setattr(os, "scandir", slow)
    page = watched()
    page.look()
    append(folder / "new.jsonl", verl_json(1, measured(1)))

    assert page.look(9.0).runs() == set()
    assert page.look(2.0).runs() == {"new"}


def test_a_run_that_was_laid_aside_is_neither_touched_nor_read_again(
    folder: Path, watched: Watching, clock: Clock, touched: Counter[str]
) -> None:
    append(folder / "a.log", *(console(step, measured(step)) for step in (1, 2)))
    page = watched(forget_after=DAY)
    page.look()
    append(folder / "a.log", "Job 'raysubmit_x1' succeeded\n")
    assert page.look(1.0).state("a") == "finished"
    assert page.look(DAY + 1.0).runs() == set()
    read = page.discover().value("stepwatch_bytes_read_total")
    touched.clear()
    page.look(0.5)

    assert touched.total() == 0
    assert page.discover().value("stepwatch_bytes_read_total") == read


# compressed logs


def ended_log(steps: int = 20) -> bytes:
    lines = [console(step, measured(step)) for step in range(1, steps + 1)]
    return "".join([*lines, "Job 'raysubmit_x1' succeeded\n"]).encode()


@pytest.mark.parametrize("name", ["a.log.gz", "a.log", "a"])
def test_a_compressed_log_is_known_by_its_content_and_read_once(
    folder: Path, watched: Watching, name: str
) -> None:
    (folder / name).write_bytes(gzip.compress(ended_log()))
    page = watched()
    found = page.look()
    assert found.state("a") == "finished"
    assert found.value("rl_records_total", run="a") == 20
    read = found.value("stepwatch_bytes_read_total")
    assert read == len(ended_log())

    for _ in range(4):
        found = page.discover()
    assert found.value("stepwatch_bytes_read_total") == read


def test_a_log_that_is_compressed_when_it_ended_stays_one_run(
    folder: Path, watched: Watching, clock: Clock
) -> None:
    log = folder / "ppo/a.log"
    log.parent.mkdir()
    page = watched()
    append(log, console(1, measured(1)))
    page.look()
    log.write_bytes(ended_log())
    assert page.look(1.0).state("ppo/a") == "finished"
    packed = log.with_name("a.log.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    os.utime(packed, (log.stat().st_mtime, log.stat().st_mtime))
    log.unlink()
    found = page.discover()

    assert len(found.runs()) == 1
    (run,) = found.runs()
    assert found.value("rl_records_total", run=run) == 20
    assert found.state(run) == "finished"


def test_ten_archives_of_long_ago_are_not_unpacked(folder: Path, watched: Watching, clock: Clock) -> None:
    for number in range(10):
        path = folder / f"{number}.log.gz"
        path.write_bytes(gzip.compress(ended_log()))
        os.utime(path, (clock.wall - 3 * DAY, clock.wall - 3 * DAY))
    found = watched().look()

    assert found.value("stepwatch_bytes_read_total") == 0
    assert found.value("stepwatch_files", kind="old") == 10
