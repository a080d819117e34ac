"""Which records are new measurements, which repeat, and which belong to another attempt."""

from __future__ import annotations

import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.model.progress import MOST_REPEATS, Kind, Progress
from exporter.runs.signals.record import Record

TWO = {"critic/score/mean": 0.5, "actor/lr": 1e-6}


def fed(*records: Record) -> tuple[Progress, list[Kind]]:
    """A progress that took the records, and what each of them was."""
    progress, kinds = Progress(), []
    for record in records:
        kinds.append(progress.kind(record))
        if kinds[-1] is Kind.RESUME:
            progress.resume()
        elif kinds[-1] is Kind.FROM_SCRATCH:
            progress = Progress()
        progress.take(record)
        progress.count(record)
    return progress, kinds


def kinds(*records: Record) -> list[Kind]:
    return fed(*records)[1]


@pytest.mark.parametrize("first", [0, 1, 101])
def test_back_to_the_first_step_is_a_start_from_scratch(first: int) -> None:
    assert kinds(Record(first, {}), Record(first + 9, {}), Record(first, {}))[-1] is Kind.FROM_SCRATCH


def test_a_resume_of_one_part_is_not_a_second_resume_of_the_others() -> None:
    progress, found = fed(
        Record(1, {}, stream="rollout"),
        Record(1, {}, stream="update"),
        Record(9, {}, stream="rollout"),
        Record(9, {}, stream="update"),
        Record(5, {}, stream="rollout"),
        Record(5, {}, stream="update"),
    )

    assert found[-2:] == [Kind.RESUME, Kind.NEW]
    assert progress.ignore_to == 9


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TWO, TWO),
        ({**TWO, "step": 1, "training/global_step": 1}, {**TWO, "step": 2, "training/global_step": 2}),
        ({**TWO, "timestamp": 1.0, "training/epoch": 0}, {**TWO, "timestamp": 2.0, "training/epoch": 1}),
        ({"a": None, "b": 1.0}, {"a": None, "b": 1.0}),
        ({"a": "nan", "b": "1.0"}, {"a": "nan", "b": "1.0"}),
        ({**TWO, "note": "warm"}, {**TWO, "note": "cold"}),
        ({**TWO, "note": "warm"}, {**TWO}),
    ],
)
def test_a_record_whose_numbers_all_repeat_is_not_a_new_measurement(
    first: dict[str, object], second: dict[str, object]
) -> None:
    assert kinds(Record(1, first), Record(2, second))[-1] is Kind.REPEAT


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TWO, {**TWO, "timing_s/step": 1.0}),
        ({**TWO, "timing_s/step": 1.0}, TWO),
        (TWO, {**TWO, "actor/lr": 2e-6}),
        ({**TWO, "timing_s/step": 1.0}, {**TWO, "timing_s/step": 1.1}),
        ({"critic/score/mean": 0.5}, {"critic/score/mean": 0.5}),
        ({"critic/score/mean": 0.5, "note": "x"}, {"critic/score/mean": 0.5, "note": "x"}),
        ({"critic/score/mean": 0.5, "step": 3}, {"critic/score/mean": 0.5, "step": 3}),
        ({}, {}),
    ],
)
def test_a_record_with_one_new_number_or_only_one_number_is_a_measurement(
    first: dict[str, object], second: dict[str, object]
) -> None:
    assert kinds(Record(1, first), Record(2, second))[-1] is Kind.NEW


def test_numbers_that_repeat_for_longer_than_any_logging_interval_are_measured() -> None:
    found = kinds(*(Record(step, TWO) for step in range(1, 200)), Record(200, {**TWO, "actor/lr": 3e-6}))

    assert found[0] is Kind.NEW
    assert set(found[1 : 1 + MOST_REPEATS]) == {Kind.REPEAT}
    assert set(found[1 + MOST_REPEATS :]) == {Kind.NEW}


def test_a_new_number_restarts_the_count_of_repeats() -> None:
    logged = [Record(step, {**TWO, "reward": step // 60}) for step in range(300)]

    assert [kind is Kind.NEW for kind in kinds(*logged)] == [step % 60 == 0 for step in range(300)]


def test_the_first_record_after_a_restart_repeats_nothing() -> None:
    progress, _ = fed(Record(1, TWO))
    restored = Progress()
    restored.restore(progress.snapshot())

    assert restored.kind(Record(2, TWO)) is Kind.NEW


def test_the_last_step_again_after_an_emptied_log_is_another_attempt() -> None:
    progress, _ = fed(Record(1, TWO), Record(2, TWO))
    progress.emptied = True

    assert progress.kind(Record(2, TWO)) is Kind.RESUME
    assert progress.kind(Record(1, TWO)) is Kind.FROM_SCRATCH
    assert progress.kind(Record(3, TWO)) is not Kind.RESUME


steps = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["", "a", "b"])), max_size=30)


@given(before=steps, after=steps)
def test_kept_and_restored_progress_goes_on_as_it_does_after_an_emptied_log(
    before: list[tuple[int, str]], after: list[tuple[int, str]]
) -> None:
    gone_on, _ = fed(*(Record(step, {"x": math.nan}, stream=stream) for step, stream in before))
    restored = Progress()
    restored.restore(orjson.loads(orjson.dumps(gone_on.snapshot())))
    gone_on.emptied = True

    for step, stream in after:
        record = Record(step, {"x": math.nan}, stream=stream)
        assert restored.kind(record) is gone_on.kind(record)
        for progress in (gone_on, restored):
            if progress.kind(record) is not Kind.NEW:
                progress.resume()
            progress.take(record)
            progress.count(record)
        assert (restored.first, restored.highest, restored.step) == (
            gone_on.first,
            gone_on.highest,
            gone_on.step,
        )
        assert (restored.ignore_to, restored.counted) == (gone_on.ignore_to, gone_on.counted)
