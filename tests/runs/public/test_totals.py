"""Totals of real logs, and of small logs whose bars and limits look like one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter.runs.logs import find
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Record
from stepwatch.operate import logfiles
from tests import public_logs


@pytest.fixture(name="inputs")
def _inputs() -> Path:
    """The small logs beside the public ones."""
    for folder in public_logs.folders():
        if (folder.parent / "inputs/wandb_finished").is_dir():
            return folder.parent / "inputs"
    pytest.skip(f"no folder `inputs` beside those that {public_logs.NAMED_BY} names")


def runs(folder: Path, options: Options | None = None) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for log in find.files([str(folder)]):
        try:
            read = logfiles.read(log, options or Options()).runs
        except logfiles.NoRunError:
            continue
        found |= {f"{log.relative} {name}".strip(): run for name, run in read.items()}
    return found


def test_bars_of_w_b_s_files_that_meet_the_step_by_chance_are_no_totals(inputs: Path) -> None:
    found = runs(inputs / "wandb_finished")

    assert len(found) == 6
    assert {name: (run.total, run.ended) for name, run in found.items()} == dict.fromkeys(found, (None, None))


def test_bars_of_consoles_that_do_not_move_with_the_records_are_no_totals(inputs: Path) -> None:
    found = runs(inputs / "bars")

    assert len(found) == 5
    assert {name: run.total for name, run in found.items()} == dict.fromkeys(found)


def test_no_real_run_has_made_all_its_steps_before_its_last(inputs: Path) -> None:
    done: dict[int, tuple[int, int]] = {}
    early: set[str] = set()

    def note(run: Run, record: Record, _found: Mapping[str, float], _clock: Clock) -> None:
        restarts, step = done.get(run.serial, (run.restarts, record.step))
        if record.step > step and restarts == run.restarts:
            early.add(f"step {record.step} after the last, {step}, of run {run.serial} ({run.source})")
        if run.made_all_steps:
            done[run.serial] = run.restarts, record.step

    for folder in (inputs, *public_logs.folders()):
        runs(folder, Options(recorder=note))

    assert early == set()
    assert done
