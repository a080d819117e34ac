"""ROLL's console; the writer here follows ``StdoutTracker`` of its source."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals import Reading
from exporter.runs.signals.record import Ended, Event, Record, number
from exporter.runs.sources import recognise
from exporter.runs.sources.line_consoles import Roll

LOGGER = "[2026-10-02 10:11:12] [tracking.py (112)] [INFO] [PIPELINE 0 / 1][PID 4711] "
RAY = "\x1b[36m(RLVRPipeline pid=4711)\x1b[0m "


def measured(step: int) -> dict[str, Any]:
    return {
        "system/global_step": step,
        "system/tps_gpu": 812.5,
        "critic/score/mean": 0.25 + step / 16,
        "critic/score/max": 1.0,
        "critic/entropy/mean": 0.5,
        "token/response_length/mean": 312.5,
        "actor/kl_loss@sum": 0.0125,
        "actor/policykl": 0.001,
        "group/all_correct_groups_ratio": 0.125,
        "group/all_incorrect_groups_ratio": 0.25,
        "val_correct/all/mean": 0.375,
    }


def tracked(step: int, values: dict[str, Any]) -> str:
    return f"{LOGGER}metrics_tag: {json.dumps({'step': step, 'metrics': values})}"


def plain(values: dict[str, Any]) -> str:
    return LOGGER + json.dumps(values, ensure_ascii=False)


def read(*lines: str) -> list[Event]:
    source = Roll()
    return [event for line in lines for event in source.parse(line.encode())]


def steps(*lines: str) -> list[int]:
    return [event.step for event in read(*lines) if isinstance(event, Record)]


@pytest.mark.parametrize("before", ["", RAY])
def test_the_lines_of_its_stdout_tracker_are_steps_and_their_keys_signals(before: str) -> None:
    line = before + tracked(3, measured(3))
    (record,) = read(line)
    source = recognise(line.encode())

    assert isinstance(record, Record)
    assert (source.name, source.framework, record.step) == ("roll_console", "roll", 3)
    assert Reading("roll").signals(record.values) == {
        "reward": 0.4375,
        "reward_max": 1.0,
        "entropy": 0.5,
        "response_length": 312.5,
        "kl": 0.0125,
        "policy_kl": 0.001,
        "zero_std_ratio": 0.375,
        "validation_score": 0.375,
        "tokens_per_second_per_gpu": 812.5,
    }


def test_without_that_tracker_the_metrics_that_pipelines_log_themselves_are_the_steps() -> None:
    lines = [plain(measured(step)) for step in (0, 10, 20)]

    assert Roll.recognises(lines[0].encode())
    assert steps(*lines, plain({"val_correct/all/mean": 0.5})) == [0, 10, 20]


def test_a_step_that_both_log_is_read_once() -> None:
    assert steps(tracked(0, measured(0)), plain(measured(0)), tracked(1, measured(1))) == [0, 1]


def test_examples_and_torn_lines_are_no_steps_and_the_end_is_reported() -> None:
    examples = LOGGER + json.dumps([{"prompt": 'metrics_tag: {"step": 1}', "response": "x"}])

    assert read(examples, tracked(4, measured(4))[:-20], plain(measured(4))[:-2]) == []
    assert read(LOGGER + "pipeline complete!") == [Ended("finished")]


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda key: "@" not in key), st.floats(), min_size=1
    ),
    st.integers(0, 10**9),
)
def test_any_numbers_come_back_as_they_were_logged(values: dict[str, float], step: int) -> None:
    values.pop("system/global_step", None)
    found = read(tracked(step, {**values, "a longer key than any": 1}))

    assert [event.step for event in found if isinstance(event, Record)] == [step]
    (record,) = (event for event in found if isinstance(event, Record))
    for key, value in values.items():  # what JSON has no word for is NaN
        assert repr(number(record.values[key])) == repr(value if math.isfinite(value) else math.nan)
