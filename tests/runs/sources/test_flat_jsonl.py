"""Flat JSON lines of home-made loops, Tinker, SkyRL and ms-swift."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals import Reading
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps, number
from exporter.runs.sources.json_logs import FlatJsonl


def events(*lines: bytes) -> list[Event]:
    source = FlatJsonl()
    found = [event for line in lines for event in source.parse(line)]
    assert not list(source.flush())
    return found


def records(*lines: bytes) -> list[Record]:
    return [event for event in events(*lines) if isinstance(event, Record)]


HALF, BOTH = {"reward": 0.5}, {"reward": 0.5, "kl": 0.1}
NAMES = ("step", "global_step", "_step", "iteration", "progress/batch", "train_step")
FIVE = (Record(5, HALF), Record(5, {"x": 1}))
STARTED, SAVED = b'{"ts":1700000000.5,"kind":"started","workers":8}', b'{"ts":1700000002.5,"kind":"saved"}'
TIMED = b'{"ts":1700000001.5,"reward":0.5,"kl":0.1}'


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ([b'{"step":12,"reward":0.5,"timestamp":1700000000.5}'], [Record(12, HALF, 1700000000.5)]),
        *(([b'{"%s":7,"reward":0.5}' % name.encode()], [Record(7, HALF)]) for name in NAMES),
        # keys that are grouped once; texts, booleans, lists and blank lines say nothing
        ([b'{"step":1,"x":{"a":1},"deep":{"a":{"b":1}},"reward":0.5}'], [Record(1, {"x/a": 1, **HALF})]),
        ([b'{"step":1,"reward":0.5,"phase":"a","done":true,"list":[1]}', b"", b"  \r"], [Record(1, HALF)]),
        ([b'{"step":1,"reward":0.5,"total_steps":0}'], [Record(1, HALF)]),
        # without a step lines with a signal are counted, and one among others belongs to the step before
        ([b'{"reward":0.5,"kl":0.1}'] * 2, [Record(1, BOTH), Record(2, BOTH)]),
        ([b'{"step":3,"reward":0.5}', b'{"eval_x":0.5}'], [Record(3, HALF), Record(3, {"eval_x": 0.5})]),
        ([STARTED, TIMED, SAVED, TIMED], [Record(1, BOTH, 1700000001.5), Record(2, BOTH, 1700000001.5)]),
        # W&B's own counter is none beside the trainer's
        ([b'{"_step":1,"train/global_step":5,"reward":0.5}', b'{"_step":2,"x":1}'], [*FIVE]),
    ],
)  # fmt: skip
def test_lines_are_records_of_their_steps(lines: list[bytes], steps: list[Record]) -> None:
    found = records(*lines)

    assert [record for record in found if record in steps] == steps
    assert {record.step for record in found} == {record.step for record in steps}


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity", "null"])
def test_bare_nan_and_inf_are_not_finite(written: str) -> None:
    line = f'{{"step":3,"kl":{written},"entropy":0.5}}'.encode()
    (found,) = records(line)
    value = number(found.values["kl"])

    assert FlatJsonl.recognises(line)
    assert value is not None
    assert math.isnan(value)


def test_ms_swift_s_progress_reports_step_and_total() -> None:
    line = (
        b'{"loss": 0.1, "reward": 0.5, "global_step/max_steps": "5/3766", "percentage": "0.13%",'
        b' "elapsed_time": "1m 29s", "memory(GiB)": 56.74, "train_speed(iter/s)": 0.056099}'
    )
    total, record = events(line)

    assert FlatJsonl.recognises(line)
    assert total == TotalSteps(3766)
    assert isinstance(record, Record)
    assert (record.step, record.values["reward"]) == (5, 0.5)


def test_the_summary_at_the_end_is_the_end_and_no_record() -> None:
    assert events(b'{"train_runtime":50.0,"reward":0.5,"step":100}') == [Ended("finished")]


@pytest.mark.parametrize(
    "line",
    [
        '{"input":"What is 2+2?","output":"4","gts":"4","score":1.0,"step":7}',
        '{"prompt":"Hi","completion":"Ho","reward":1.0,"step":7}',
        '{"messages":[{"role":"user"}],"reward":1.0,"step":7}',
        '{"step":1,"reward":0.5,"note":"' + "x" * 300 + '"}',
    ],
)
def test_samples_are_no_records(line: str) -> None:
    assert not FlatJsonl.recognises(line.encode())
    assert events(line.encode()) == []


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        '{"step":1}',
        '{"step":1,"name":"reward"}',
        '{"step":1,"x":2}',
        '{"learning_rate":1e-6,"epoch":3,"kl_coef":0.1}',
        '{"id":4,"score":1.0}',
        '{"step":12,"data":{"actor/entropy":0.41}}',
        '{"step":1,"reward":"high"}',
        '{"step":1,"reward":0.5',
        '{"step":1,"reward":{"mean":{"a":1}}}',
    ],
)
def test_other_objects_are_not_recognised(line: str) -> None:
    assert not FlatJsonl.recognises(line.encode())


@pytest.mark.parametrize(
    "line",
    [
        b"text",
        b"[1]",
        b'{"step":1,"reward":0.5',
        b'{"step":-1,"reward":0.5}',
        b'{"step":1.5,"reward":0.5}',
        b'{"step":null,"reward":0.5}',
        b'{"step":1e300,"reward":0.5}',
        b'{"global_step/max_steps":"5","reward":0.5}',
        b'{"step":1,"reward":NaN,"x":' + b"[" * 100_000 + b"}",
    ],
)
def test_an_invalid_record_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"record|step"):
        events(line)


# LLaMA-Factory


def llama_factory(step: int, total: int, **logged: float) -> bytes:
    """As ``LogCallback`` of ``src/llamafactory/train/callbacks.py`` writes it (0583d06, the newest)."""
    line: dict[str, Any] = {"current_steps": step, "total_steps": total, **logged}
    line |= {
        "percentage": round(step / total * 100, 2),
        "elapsed_time": "0:00:10",
        "remaining_time": "0:01:30",
    }
    return json.dumps(line).encode()


def test_llama_factory_s_log_reports_step_and_total() -> None:
    line = llama_factory(10, 100, loss=0.5, reward=0.25, lr=1e-6, epoch=0.1)
    record, total = events(line)

    assert FlatJsonl.recognises(line)
    assert total == TotalSteps(100)
    assert record == Record(10, {"loss": 0.5, "reward": 0.25, "lr": 1e-6, "epoch": 0.1})
    assert isinstance(record, Record)
    assert Reading("").signals(record.values) == {
        "loss": 0.5, "policy_loss": 0.5, "reward": 0.25, "learning_rate": 1e-6, "epoch": 0.1,
    }  # fmt: skip


def test_what_llama_factory_predicts_after_the_training_is_not_a_step_of_it() -> None:
    assert records(llama_factory(100, 100, loss=0.5), llama_factory(5, 20)) == [Record(100, {"loss": 0.5})]


# statistics without a name


def nameless(step: int, mean: float, low: float = 0.0, high: float = 1.0) -> bytes:
    return json.dumps({"epoch": 0, "step": step, "mean": mean, "min": low, "max": high}).encode()


def test_statistics_without_a_name_are_the_score_s() -> None:
    assert FlatJsonl.recognises(nameless(1, 0.25))
    (found,) = records(nameless(1, 0.25, 0.125, 1.0))

    assert found == Record(1, {"reward_mean": 0.25, "reward_min": 0.125, "reward_max": 1.0})
    assert Reading("").signals(found.values) == {"reward": 0.25, "reward_min": 0.125, "reward_max": 1.0}


@pytest.mark.parametrize(
    "line",
    [
        '{"mean":0.5,"min":0.0,"max":1.0}',
        '{"step":1,"mean":0.5}',
        '{"step":1,"name":"latency","mean":0.5,"min":0.0,"max":1.0}',
        '{"step":1,"count":64,"mean":0.5,"min":0.0,"max":1.0}',
        '{"step":1,"mean":412.5,"min":12,"max":1024}',
    ],
)
def test_other_statistics_are_not_taken_for_the_score_s(line: str) -> None:
    assert not FlatJsonl.recognises(line.encode())


# steps with digits too many


@given(st.integers(0, 500), st.integers(1, 10), st.data())
def test_a_step_with_digits_too_many_is_the_step_that_should_come(
    first: int, distance: int, data: st.DataObject
) -> None:
    steps = [first + distance * index for index in range(12)]
    place = data.draw(st.integers(2, 10))
    digits = data.draw(st.text("0123456789", min_size=1, max_size=5))
    wrong = int(f"{steps[place]}{digits}") if steps[place] else 0
    reported = [wrong if index == place else step for index, step in enumerate(steps)]

    assert [record.step for record in records(*(nameless(step, 0.5) for step in reported))] == steps


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=20, unique=True).map(sorted))
def test_steps_that_rise_are_handed_on_as_they_are(steps: list[int]) -> None:
    found = [record.step for record in records(*(nameless(step, 0.5) for step in [*steps, 10**6]))]

    assert found[: len(steps)] == steps


def test_a_resume_after_a_jump_is_a_resume() -> None:
    reported = [1, 2, 3, 40, 3, 4, 5]

    assert [record.step for record in records(*(nameless(step, 0.5) for step in reported))] == reported


# real logs


def test_a_home_made_log_can_say_how_many_steps_there_will_be_and_that_it_is_done() -> None:
    source = FlatJsonl()
    lines = (
        b'{"step": 1, "reward": 0.5, "total_steps": 2, "progress/done_frac": 0.5}',
        b'{"step": 2, "reward": 0.6, "total_steps": 2, "progress/done_frac": 1.0}',
    )
    events = [event for line in lines for event in source.parse(line)]

    assert [event for event in events if not isinstance(event, Record)] == [
        TotalSteps(2),
        TotalSteps(2),
        Ended("finished"),
    ]
    assert all("total_steps" not in event.values for event in events if isinstance(event, Record))
