"""A run as its log tells it: attempts, streams, counts and times."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from tests.runs.lines import measured

NOW = 1_700_000_000.0


def fed(*events: Event, live: bool = True, every: float = 30.0) -> Run:
    """A run that took these events, one every so many seconds."""
    run = Run("verl_jsonl", "verl", Options(hold=15.0))
    for number, event in enumerate(events):
        run.take(event, Clock(NOW + every * number, every * number, live))
    return run


def steps(first: int, last: int, **more: float) -> list[Record]:
    return [Record(step, measured(step, **more)) for step in range(first, last + 1)]


def shown(run: Run, name: str, signal: str, steps: int | None = None) -> float | None:
    readers = run.statistics[signal].readers
    (value,) = [read() for s, read in readers if s.name == name and (steps is None or s.steps == steps)]
    return value


# attempts


def test_steps_logged_again_after_a_resume_are_ignored_until_past_the_old_highest() -> None:
    run = fed(*steps(1, 100), *steps(81, 100, reward=-9.0), *steps(101, 103))

    assert (run.records, run.resumes, run.progress.step) == (103, 1, 103)
    assert run.latest["reward"] == measured(103)["critic/score/mean"]
    assert run.statistics["reward"].values[-1] == measured(103)["critic/score/mean"]
    assert len(run.statistics["reward"].values) == 3
    assert not any(value == -9.0 for value in run.statistics["reward"].values)


def test_a_start_from_scratch_forgets_everything_but_the_resumes() -> None:
    run = fed(*steps(1, 50), *steps(40, 60), *steps(1, 3))

    assert (run.records, run.resumes, run.progress.highest) == (3, 1, 3)
    assert shown(run, "start", "kl") is None
    assert run.times.start == NOW + 30.0 * (50 + 21)


def test_restarts_are_counted_wherever_they_begin_and_the_lost_steps_are_those_of_the_last_resume() -> None:
    resumed = fed(*steps(1, 100), *steps(81, 90), *steps(61, 70))
    over = fed(*steps(1, 100), *steps(81, 90), *steps(1, 3), *steps(1, 5))

    assert (resumed.resumes, resumed.restarts, resumed.lost) == (2, 2, 30)
    assert (over.resumes, over.restarts, over.lost) == (1, 3, None)
    assert fed(*steps(1, 100)).lost is None


# records of one step


def test_records_of_one_step_add_their_signals_and_count_once() -> None:
    run = fed(
        Record(5, {"critic/score/mean": 0.5, "actor/kl_loss": 0.1}),
        Record(5, {"timing_s/step": 30.0, "timing_s/gen": 20.0}),
        Record(5, {"val-core/gsm8k/acc": 0.7}),
        Record(6, {"critic/score/mean": 0.6, "actor/kl_loss": 0.2}),
    )

    assert run.records == 2
    assert list(run.statistics["reward"].values) == [0.5, 0.6]
    assert run.latest["step_seconds"] == 30.0


def test_a_signal_counts_once_in_a_step_and_the_first_value_is_the_measurement() -> None:
    run = fed(Record(5, {"critic/score/mean": 0.5, "x": 1}), Record(5, {"critic/score/mean": 0.9, "x": 2}))

    assert list(run.statistics["reward"].values) == [0.5]
    assert run.latest["reward"] == 0.5


def test_unchanged_records_are_no_measurements_and_still_move_step_and_time() -> None:
    run = fed(*(Record(step, {"critic/score/mean": 0.5, "actor/lr": 1e-6}) for step in range(1, 11)))

    assert (run.records, run.progress.step) == (1, 10)
    assert list(run.statistics["reward"].values) == [0.5]
    assert run.times.last == NOW + 270.0


def test_a_validation_record_without_signals_moves_no_statistic() -> None:
    run = fed(Record(0, {"val-core/gsm8k/acc": 0.1}), *steps(1, 5))

    assert len(run.statistics["reward"].values) == 5
    assert run.progress.first == 0


def test_a_missing_value_leaves_the_streak_as_it_is() -> None:
    nan = {"critic/score/mean": None}
    run = fed(Record(1, nan), Record(2, {**nan, "x": 1}), Record(3, {"actor/lr": 1e-6}), Record(4, nan))

    assert run.statistics["reward"].streak == 3


# what the log says


def each(count: int, *totals: Callable[[int], TotalSteps]) -> list[Event]:
    """So many steps, each followed by what is said of the total then."""
    return [event for step in steps(1, count) for event in (step, *(total(step.step) for total in totals))]


def fixed(total: int, key: str = "") -> Callable[[int], TotalSteps]:
    return lambda _: TotalSteps(total, key=key)


@pytest.mark.parametrize(
    ("logged", "total"),
    [
        # a step above the total drops it, unless it is one of the attempt before
        ([TotalSteps(10), *steps(1, 10)], 10),
        ([TotalSteps(10), *steps(1, 11)], None),
        (each(119, fixed(10)), None),
        ([TotalSteps(50), *steps(1, 50), TotalSteps(20), *steps(1, 5)], 20),
        ([TotalSteps(300), *steps(1, 250), TotalSteps(200), *steps(101, 120)], 200),
        # one that moves with the step is none
        (each(40, TotalSteps), None),
        ([*each(40, lambda step: TotalSteps(8 * step)), *steps(41, 60), TotalSteps(8 * 61)], None),
        # first that of another bar, or of shorter trainings in one log
        ([TotalSteps(1), *steps(1, 1), TotalSteps(5), *steps(2, 6), TotalSteps(500), *steps(7, 90)], 500),
        ([event for total in (20, 50, 80, 120, 200) for event in (TotalSteps(total), *steps(1, total))], 200),
        # of two, the one that no step refutes
        (each(119, fixed(10, "max_steps"), fixed(200, "total_steps")), 200),
        (each(119, fixed(200, "max_steps"), lambda step: TotalSteps(8 * step, key="total_steps")), 200),
    ],
)
def test_the_total_is_the_last_that_no_step_refutes(logged: list[Event], total: int | None) -> None:
    assert fed(*logged).total == total


def test_a_total_from_before_a_restart_counts_until_the_log_says_one() -> None:
    run, next_one = fed(TotalSteps(100), *steps(1, 50)), Run("verl_jsonl", "verl", Options())
    next_one.restore(run.snapshot())
    restored = next_one.total
    next_one.take(TotalSteps(200, key="max_steps"), Clock(NOW, 0.0, live=True))

    assert (restored, next_one.total) == (100, 200)


def test_a_certain_failure_takes_back_a_finish_and_a_doubt() -> None:
    assert fed(*steps(1, 2), Ended("finished"), Ended("failed")).ended == Ended("failed")
    assert fed(*steps(1, 2), Ended("failed", certain=False), Ended("failed")).ended == Ended("failed")


# times


def test_live_records_without_a_time_are_dated_by_their_arrival() -> None:
    times = fed(*steps(1, 5), every=30.0).times

    assert (times.start, times.last, times.pace.typical()) == (NOW, NOW + 120.0, 30.0)


def test_the_pace_is_that_of_steps_however_many_records_a_step_has() -> None:
    run = Run("scoped_jsonl", "scoped", Options(hold=15.0))
    for step in range(1, 20):
        for later, stream in ((0, "rollout"), (100, "update"), (150, "rollout")):
            record = Record(step, {"reward_mean": step + later}, stream=stream)
            run.take(record, Clock(NOW + 1000 * step + later, float(step), live=True))

    assert run.times.pace.typical() == 1000.0
    assert run.times.last == NOW + 19_150


def test_the_pace_goes_on_while_steps_are_logged_again() -> None:
    run = fed(*steps(1, 10), *steps(5, 20), every=30.0)

    assert list(run.times.pace.intervals) == [30.0] * 25


def test_a_records_own_time_is_believed_unless_it_is_ahead_of_ours() -> None:
    past = fed(*(Record(step, {"x": step}, time=NOW - 1000 + 20 * step) for step in range(1, 4))).times
    future = fed(*(Record(step, {"x": step}, time=NOW * 1000) for step in range(1, 4))).times

    assert (past.start, past.last) == (NOW - 980, NOW - 940)
    assert (future.start, future.last) == (NOW, NOW + 60.0)


def test_a_replayed_time_ahead_of_ours_is_not_believed() -> None:
    times = fed(Record(1, {"x": 1}, time=NOW * 1000), live=False).times

    assert times.last == NOW


def test_time_does_not_go_back_when_parts_of_a_trainer_log_out_of_order() -> None:
    run = fed(Record(1, {"x": 1}, time=NOW - 5, stream="a"), Record(1, {"x": 1}, time=NOW - 9, stream="b"))

    assert run.times.last == NOW - 5


def test_a_replayed_log_ends_when_it_was_written_and_lasted_as_long_as_its_steps() -> None:
    run = fed(*(Record(step, {"perf/time_per_step": 60.0, "x": step}) for step in range(10)), live=False)
    run.times.caught_up(NOW - 100)

    assert (run.times.last, run.times.start, run.times.pace.typical()) == (NOW - 100, NOW - 700, 60.0)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -5.0, 0.0])
def test_step_times_that_are_none_move_no_clock(seconds: float) -> None:
    run = fed(Record(1, {"perf/time_per_step": seconds, "x": 1}), live=False)
    run.times.caught_up(NOW - 100)

    assert (run.times.start, run.times.pace.typical()) == (NOW - 100, None)
