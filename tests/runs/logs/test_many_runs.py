"""Hundreds of runs that grow at once."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.runs.model.run_set import MOST_RUNS
from tests.runs.lines import append, measured, verl_json
from tests.runs.test_main import Exporter, Start, _start  # noqa: F401  (a fixture)

RUNS = MOST_RUNS


def log_step(folder: Path, step: int) -> None:
    """Every run logs that step; no two runs log the same numbers."""
    for run in range(RUNS):
        values = measured(step, reward=run / 100 + step / 1000)
        append(folder / f"{run:03}.jsonl", verl_json(step, values))


def shown(page: str, name: str) -> dict[str, float]:
    """The value of every run; a plain search, since the official parser takes seconds for so many."""
    found = re.findall(rf'^{name}{{run="(\d+)"}} (\S+)$', page, re.MULTILINE)
    return {run: float(value) for run, value in found}


def every_run(value: int) -> dict[str, int]:
    return {f"{run:03}": value for run in range(RUNS)}


def test_no_step_is_lost_while_all_of_them_grow_under_a_real_exporter(folder: Path, start: Start) -> None:
    log_step(folder, 1)
    exporter = start("--path", folder)
    exporter.until(lambda found: found.value("stepwatch_runs", state="running") == RUNS)
    for step in range(2, 16):
        log_step(folder, step)
    found = exporter.until(lambda found: shown(found.text, "rl_step") == every_run(15))

    assert shown(found.text, "rl_records_total") == every_run(15)
    assert shown(found.text, "rl_resumes_total") == every_run(0)
