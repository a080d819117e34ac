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


def test_a_line_is_a_record_of_its_step() -> None:
    line = b'{"step":12,"reward/mean":0.5,"timestamp":1700000000.5}'

    assert FlatJsonl.recognises(line)
    assert records(line) == [Record(12, {"reward/mean": 0.5}, 1700000000.5)]


@pytest.mark.parametrize("key", ["step", "global_step", "_step", "iteration", "progress/batch", "train_step"])
def test_the_step_has_many_names(key: str) -> None:
    line = json.dumps({key: 7, "mean_reward": 0.5}).encode()

    assert FlatJsonl.recognises(line)
    assert records(line) == [Record(7, {"mean_reward": 0.5})]


def test_lines_are_counted_where_no_step_is_reported() -> None:
    line = b'{"mean_reward":0.5,"entropy":0.25}'

    assert FlatJsonl.recognises(line)
    assert [found.step for found in records(line, line)] == [1, 2]


def test_a_line_without_a_step_among_others_belongs_to_the_step_before() -> None:
    found = records(
        b'{"step":3,"mean_reward":0.5}', b'{"eval_accuracy":0.5}', b'{"step":4,"mean_reward":0.5}'
    )

    assert [record.step for record in found] == [3, 3, 4]


def test_keys_that_are_grouped_once_are_flattened() -> None:
    (found,) = records(b'{"step":1,"reward":{"mean":0.5,"max":1},"deep":{"a":{"b":1}}}')

    assert found.values == {"reward/mean": 0.5, "reward/max": 1}


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity", "null"])
def test_bare_nan_and_inf_are_not_finite(written: str) -> None:
    line = f'{{"step":3,"kl":{written},"entropy":0.5}}'.encode()
    (found,) = records(line)
    value = number(found.values["kl"])

    assert FlatJsonl.recognises(line)
    assert value is not None
    assert math.isnan(value)


def test_text_and_booleans_are_left_out() -> None:
    (found,) = records(b'{"step":1,"mean_reward":0.5,"phase":"rollout","done":true,"list":[1]}')

    assert found.values == {"mean_reward": 0.5}


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


def test_blank_lines_say_nothing() -> None:
    assert events(b"", b"  \r") == []


# events


def test_lines_without_a_signal_are_no_steps_where_no_step_is_reported() -> None:
    found = records(
        b'{"ts":1700000000.5,"kind":"started","workers":8}',
        b'{"ts":1700000001.5,"reward":0.25,"entropy":0.5}',
        b'{"ts":1700000002.5,"kind":"saved","seconds":3.5}',
        b'{"ts":1700000003.5,"reward":0.5,"entropy":0.25}',
    )

    assert [(record.step, record.time) for record in found if "reward" in record.values] == [
        (1, 1700000001.5),
        (2, 1700000003.5),
    ]
    assert {record.step for record in found} == {1, 2}


def test_a_step_of_w_b_s_own_counter_is_none_beside_the_trainer_s() -> None:
    found = records(
        b'{"_step":0,"profiling/generate":1.5}',
        b'{"_step":1,"train/global_step":5,"train/reward":0.25}',
        b'{"_step":2,"profiling/generate":1.5}',
        b'{"_step":3,"train/global_step":10,"train/reward":0.5}',
    )

    assert [record.step for record in found] == [5, 5, 10]


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


def test_a_total_of_none_is_not_reported() -> None:
    assert events(b'{"step":1,"reward":0.5,"total_steps":0}') == [Record(1, {"reward": 0.5})]


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


def test_statistics_beside_named_numbers_are_not_taken_for_the_score_s() -> None:
    (found,) = records(b'{"step":1,"kl":0.5,"mean":0.5,"min":0.0,"max":1.0}')

    assert Reading("").signals(found.values) == {"kl": 0.5}


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
