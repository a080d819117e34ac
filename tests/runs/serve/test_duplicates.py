"""A run that several logs tell of is shown once, and two runs never as one."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.logs.processes import CONFIRMATIONS
from exporter.runs.model.fingerprint import AGREEING_STEPS, STEPS, TIME, Fingerprint
from exporter.runs.model.same import COMPARE_SECONDS
from tests.runs.conftest import Clock, Watching
from tests.runs.fake_proc import pretend
from tests.runs.lines import KEYS, append, console, measured, verl_json

Line = Callable[[int, dict[str, float]], str]
steps = st.lists(
    st.fixed_dictionaries({name: st.floats(0.1, 100) for name in ("reward", "entropy", "grad_norm")}),
    min_size=AGREEING_STEPS,
    max_size=60,
    unique_by=lambda step: tuple(step.values()),
)


def trace(values: list[dict[str, float]], first: int = 1) -> Fingerprint:
    made = Fingerprint()
    for step, found in enumerate(values, first):
        made.note(step, found)
    return made


def reported(steps: range, **more: float) -> list[tuple[int, dict[str, float]]]:
    """A run whose values are like no other's, unless they are the same."""
    return [(step, measured(step, entropy=0.3 + step * 0.7919 % 0.4, **more)) for step in steps]


def write_both(folder: Path, steps: range) -> None:
    append(folder / "ppo/gsm8k.jsonl", *(verl_json(step, values) for step, values in reported(steps)))
    append(folder / "ppo/train.log", *(console(step, values) for step, values in reported(steps)))


# what tells a run


ROUNDINGS: dict[str, Callable[[float], float]] = {
    "four digits": lambda value: float(f"{value:.4g}"),
    "three decimals": lambda value: round(value, 3),
    "32 bits": lambda value: struct.unpack("f", struct.pack("f", value))[0],
    "not at all": lambda value: value,
}


@given(steps, st.sampled_from(sorted(ROUNDINGS)), st.sampled_from(sorted(ROUNDINGS)))
def test_a_run_is_itself_however_its_numbers_were_rounded(
    exact: list[dict[str, float]], one: str, other: str
) -> None:
    values = [{name: ROUNDINGS[one](value) for name, value in step.items()} for step in exact]
    rounded = [{name: ROUNDINGS[other](value) for name, value in step.items()} for step in exact]

    assert trace(values).is_same(trace(rounded)) is not False
    if len({value for step in values[-STEPS:] for value in step.values()}) >= 40:
        assert trace(values).is_same(trace(rounded)) is True


@given(steps, st.integers(0, 59), st.sampled_from(["reward", "entropy", "grad_norm"]))
def test_one_value_that_differs_makes_another_run(values: list[dict[str, float]], at: int, name: str) -> None:
    recent = values[-STEPS:]
    at %= len(recent)
    other = [dict(step) for step in recent]
    other[at][name] += 3e-3 * max(1.0, other[at][name])

    assert trace(recent).is_same(trace(other)) is False


@given(steps, st.integers(0, 59), st.sampled_from(["reward", "entropy", "grad_norm"]))
def test_logs_that_do_not_round_differ_by_less(values: list[dict[str, float]], at: int, name: str) -> None:
    recent = [{signal: value + math.pi / 1e9 for signal, value in step.items()} for step in values[-STEPS:]]
    other = [dict(step) for step in recent]
    other[at % len(recent)][name] *= 1.0001

    assert trace(recent).is_same(trace(other)) is False


NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])


@given(steps, st.integers(0, 59), NOT_FINITE, NOT_FINITE)
def test_what_is_not_finite_equals_itself_only(
    values: list[dict[str, float]], at: int, value: float, another: float
) -> None:
    recent = values[-STEPS:]
    sick, worse = [dict(step) for step in recent], [dict(step) for step in recent]
    sick[at % len(recent)]["grad_norm"], worse[at % len(recent)]["grad_norm"] = value, another

    assert trace(sick).is_same(trace(recent)) is False
    assert (trace(sick).is_same(trace(worse)) is False) == (repr(value) != repr(another))


@given(steps)
def test_runs_without_a_common_step_cannot_be_compared(values: list[dict[str, float]]) -> None:
    assert trace(values).is_same(trace(values, first=1000)) is None


def test_constants_tell_nothing() -> None:
    flat = [{"reward": 0.0, "entropy": 0.5}] * 30

    assert trace(flat).is_same(trace(flat)) is None


def test_three_steps_are_too_few() -> None:
    few = [{"reward": step * 1.1, "entropy": step * 2.3, "grad_norm": step + 9.7} for step in (1, 2, 3)]

    assert trace(few).is_same(trace(few)) is None


# on the page


def test_two_logs_of_one_run_with_one_stem_leave_it_the_short_name(folder: Path, watched: Watching) -> None:
    append(folder / "ppo.jsonl", *(verl_json(step, values) for step, values in reported(range(1, 40))))
    append(folder / "ppo.log", *(console(step, values) for step, values in reported(range(1, 40))))
    found = watched().look()

    assert found.runs() == {"ppo"}
    assert found.value("stepwatch_name_collisions") == 0


def test_what_only_the_console_says_of_the_end_is_the_runs_end(folder: Path, watched: Watching) -> None:
    (folder / "ppo").mkdir()
    page = watched()
    write_both(folder, range(1, 40))
    page.look()
    write_both(folder, range(40, 45))
    append(folder / "ppo/train.log", "Final validation metrics: {}\n")

    assert page.look(1.0).state("ppo/gsm8k") == "finished"


def test_one_log_in_two_folders_that_grow_together_is_one_run(folder: Path, watched: Watching) -> None:
    page = watched()
    for name in ("logs/train-7.log", "wandb/run-1-abc/files/output.log"):
        (folder / name).parent.mkdir(parents=True)
        append(folder / name, *(console(step, values) for step, values in reported(range(1, 40))))

    assert len(page.look().runs()) == 1


def test_a_console_beside_the_output_folder_is_found_again_long_after_both_were_written(
    folder: Path, watched: Watching, clock: Clock
) -> None:
    (folder / "trl/out").mkdir(parents=True)
    for name, age in (("trl/grpo.log", 3000), ("trl/out/metrics.jsonl", 9000)):
        write = console if name.endswith(".log") else verl_json
        append(folder / name, *(write(step, values) for step, values in reported(range(1, 40))))
        append(folder / name, *(["Final validation metrics: {}\n"] if write is console else []))
        os.utime(folder / name, (clock.wall - age, clock.wall - age))
    page = watched()
    page.look()
    for log in page.watch.logs:
        log.run_set.runs[""].watched = True  # type: ignore[union-attr]
    found = page.look(10.0)

    assert len(found.runs()) == 1
    assert found.value("stepwatch_runs", state="finished") == 1


def test_a_retry_with_the_same_seed_beside_the_first_attempt_is_a_run_of_its_own(
    folder: Path, watched: Watching, clock: Clock
) -> None:
    (folder / "ppo").mkdir()
    page = watched()
    page.look()
    for name in ("ppo/first.log", "ppo/second.log"):
        page.look(60.0)
        for step in range(1, 20):
            append(folder / name, *(console(*line) for line in reported(range(step, step + 1))))
            os.utime(folder / name, (clock.wall, clock.wall))
            page.look(6.0)

    assert page.look().runs() == {"ppo/first", "ppo/second"}


def test_a_run_repeated_the_next_day_is_a_run_of_its_own(
    folder: Path, watched: Watching, clock: Clock
) -> None:
    page = watched()
    for name, age in (("monday/a.jsonl", 40_000), ("tuesday/a.jsonl", 10)):
        (folder / name).parent.mkdir()
        append(folder / name, *(verl_json(step, values) for step, values in reported(range(1, 40))))
        os.utime(folder / name, (clock.wall - age, clock.wall - age))
    page.look()
    for name in ("monday/a.jsonl", "tuesday/a.jsonl"):
        page.watch.logs.by_path[folder / name].run_set.runs[""].watched = True  # type: ignore[union-attr]

    assert page.look().runs() == {"monday/a", "tuesday/a"}


def test_seeds_of_one_experiment_side_by_side_are_runs_of_their_own(folder: Path, watched: Watching) -> None:
    page = watched()
    for seed in range(4):
        lines = reported(range(1, 60), reward=0.4 + seed / 50)
        append(folder / f"seed{seed}.jsonl", *(verl_json(step, values) for step, values in lines))

    assert page.look().runs() == {f"seed{seed}" for seed in range(4)}


@pytest.mark.parametrize("value", [0.9, math.nan])
def test_runs_that_part_after_a_common_beginning_are_shown_apart_from_then_on(
    folder: Path, watched: Watching, value: float
) -> None:
    page = watched()
    append(folder / "a.jsonl", *(verl_json(*line) for line in reported(range(1, 40))))
    append(folder / "b.log", *(console(*line) for line in reported(range(1, 40))))
    assert len(page.look().runs()) == 1
    append(folder / "a.jsonl", *(verl_json(*line) for line in reported(range(40, 42))))
    append(folder / "b.log", *(console(*line) for line in reported(range(40, 42), reward=value)))

    assert page.look(COMPARE_SECONDS).runs() == {"a", "b"}


# two runs with one seed, whose numbers are all equal


@pytest.mark.parametrize("write", [console, verl_json])
def test_two_runs_with_one_seed_are_two_runs(folder: Path, watched: Watching, write: Line) -> None:
    for name in "ab":
        append(folder / f"{name}.log", *(write(*line) for line in reported(range(1, 40))))

    assert watched().look().runs() == {"a", "b"}


def test_two_runs_with_one_seed_are_two_runs_also_under_one_file_name(
    folder: Path, watched: Watching
) -> None:
    page = watched()
    for name in ("a", "b"):
        (folder / name).mkdir()
    page.look()
    for step, values in reported(range(1, 40)):
        for name in ("a", "b"):
            append(folder / name / "train.jsonl", verl_json(step, values))
        page.look(1.0)

    assert len(page.discover().runs()) == 2


def test_two_runs_with_one_seed_that_both_have_a_console_and_lines_are_two_runs(
    folder: Path, watched: Watching
) -> None:
    page = watched()
    for first, last in ((1, 30), (30, 40)):
        for name in ("b.log", "a.jsonl", "a.log", "b.jsonl"):
            write = console if name.endswith(".log") else verl_json
            append(folder / name, *(write(*line) for line in reported(range(first, last))))
        page.look(COMPARE_SECONDS)
    append(folder / "b.log", "Final validation metrics: {}\n")
    found = page.look(COMPARE_SECONDS)

    assert found.runs() == {"a", "b"}
    assert (found.state("a"), found.state("b")) == ("running", "finished")


@pytest.mark.parametrize(("processes", "runs"), [((7, 8), 2), ((7, 7), 1)])
def test_two_logs_of_one_format_are_one_run_where_one_process_writes_both(
    folder: Path, watched: Watching, tmp_path: Path, processes: tuple[int, int], runs: int
) -> None:
    for name, process in zip("ab", processes, strict=True):
        append(folder / f"{name}.log", *(console(*line) for line in reported(range(1, 40))))
        pretend(tmp_path / "proc", process, folder / f"{name}.log", "0100001", descriptor=ord(name))
    page = watched(proc=tmp_path / "proc")
    for _ in range(CONFIRMATIONS):
        page.look(1.0)

    assert len(page.look(COMPARE_SECONDS).runs()) == runs


@pytest.mark.parametrize(("seconds", "runs"), [(0.0, 1), (0.1, 2)])
def test_a_copy_of_a_log_repeats_the_times_of_its_steps_and_another_run_does_not(
    folder: Path, watched: Watching, seconds: float, runs: int
) -> None:
    page = watched()
    for name, more in (("a", 0.0), ("b", seconds)):
        lines = [
            (step, {**values, KEYS[TIME]: 20 + step % 7 + more}) for step, values in reported(range(1, 40))
        ]
        append(folder / f"{name}.log", *(console(*line) for line in lines))

    assert len(page.look().runs()) == runs


def test_a_trainers_state_and_its_console_are_one_run(folder: Path, watched: Watching) -> None:
    history = [
        {"step": step, "epoch": step / 100, "reward": 0.5 + step / 37, "grad_norm": 1 + step % 9 / 7}
        for step in range(1, 41)
    ]
    printed = [{key: value for key, value in record.items() if key != "step"} for record in history]
    (folder / "out/checkpoint-40").mkdir(parents=True)
    state = {"global_step": 40, "max_steps": 100, "log_history": history}
    (folder / "out/checkpoint-40/trainer_state.json").write_text(json.dumps(state, indent=2))
    append(folder / "out/train.log", *(f"{record}\n" for record in printed))

    assert len(watched().look().runs()) == 1
