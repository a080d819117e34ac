"""Which records are measured: a wrong number of a step, and NaN beside values that stay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pytest

from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Record


def _run(records: Iterable[tuple[int, Mapping[str, float]]]) -> Run:
    run = Run("verl_jsonl", "verl", Options())
    for count, (step, values) in enumerate(records):
        run.take(Record(step, {"actor/lr": 1e-6, **values}), Clock(1e9, 100.0 + count, live=True))
    return run


@pytest.mark.parametrize("at", [1, 7, 40])
@pytest.mark.parametrize("wrong", [2623, 10**6])
def test_one_wrong_number_of_a_step_is_no_resume(at: int, wrong: int) -> None:
    run = _run(
        (wrong if step == at else step, {"critic/score/mean": 0.3 + step % 3 / 10}) for step in range(60)
    )

    assert (run.restarts, run.records, run.progress.step) == (0, 60, 59)
    assert run.statistics["reward"].values.tolist() == [0.3 + step % 3 / 10 for step in range(60)]


def test_going_back_to_a_step_that_was_logged_stays_a_resume() -> None:
    run = _run((step, {"critic/score/mean": step / 1e3}) for step in (*range(50), *range(10, 60)))

    assert (run.resumes, run.records) == (1, 60)


def test_nan_counts_in_each_record_although_all_else_stays_the_same() -> None:
    frozen = {"critic/score/mean": 0.0, "actor/grad_norm": math.nan, "actor/pg_loss": 0.001}
    run = _run((step, frozen) for step in range(3))

    assert run.statistics["grad_norm"].streak == 3
