"""Histories that are rewritten as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.json_logs import JsonDocument, JsonList, MetricTable, TrainerState


def state(*entries: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"best_metric": None, "log_history": entries, **more}, indent=2).encode()


def entry(step: int, reward: float = 0.5) -> dict[str, Any]:
    return {"epoch": step / 10, "reward": reward, "step": step}


def steps(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Record)]


def read(source: JsonDocument, text: bytes) -> list[Event]:
    found = list(source.parse(text))
    assert not list(source.flush())
    return found


# a trainer's state


def test_a_state_holds_the_history_and_the_total() -> None:
    text = state(entry(10), entry(20), max_steps=200, global_step=20)

    assert TrainerState.recognises(text)
    assert not JsonList.recognises(text)
    assert read(TrainerState(), text) == [
        TotalSteps(200),
        Record(10, {"epoch": 1.0, "reward": 0.5}),
        Record(20, {"epoch": 2.0, "reward": 0.5}),
    ]


@pytest.mark.parametrize("total", [-1, 0, None, "200", 10**20])
def test_an_invalid_total_is_not_reported(total: Any) -> None:
    assert steps(read(TrainerState(), state(entry(1), max_steps=total))) == [1]
    assert not any(
        isinstance(event, TotalSteps) for event in read(TrainerState(), state(entry(1), max_steps=total))
    )


def test_evaluation_shares_the_step_of_its_record() -> None:
    found = read(TrainerState(), state(entry(10), {"epoch": 1.0, "eval_reward": 0.25, "step": 10}))

    assert steps(found) == [10, 10]


def test_the_summary_is_the_end_and_no_record() -> None:
    found = read(TrainerState(), state(entry(10), {"train_runtime": 50.0, "reward": 0.75, "step": 10}))

    assert steps(found) == [10]
    assert found[-1] == Ended("finished")


def test_a_history_that_became_shorter_reports_nothing_until_it_grows() -> None:
    source = TrainerState()
    read(source, state(entry(10), entry(20), entry(30)))

    assert read(source, state(entry(10), entry(20))) == []
    assert steps(read(source, state(entry(10), entry(20), entry(25)))) == [25]


def test_an_entry_that_is_broken_does_not_hide_the_others() -> None:
    found = read(TrainerState(), state(entry(10), {"reward": 0.5, "step": "?"}, entry(20)))

    assert steps(found) == [10, 20]


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b"[1]", b'{"log_history": {}}', b'{"log_history": []}', b'{"log_history": [1]}'],
)
def test_other_documents_are_not_recognised(text: bytes) -> None:
    assert not TrainerState.recognises(text)
    assert not JsonList.recognises(text)


# lists


def test_a_list_of_logs_is_recognised_and_counted_where_no_step_is_reported() -> None:
    source = JsonList()
    text = json.dumps([{"reward": 0.5, "entropy": 0.1}] * 2).encode()
    longer = json.dumps([{"reward": 0.5, "entropy": 0.1}] * 3).encode()

    assert JsonList.recognises(text)
    assert steps(read(source, text)) == [1, 2]
    assert steps(read(source, longer)) == [3]


def test_a_list_of_samples_is_not_recognised() -> None:
    text = json.dumps([{"prompt": "Hi", "completion": "Ho", "reward": 1.0, "step": 1}]).encode()

    assert not JsonList.recognises(text)


# tables of metric, step and value


def table(columns: dict[str, dict[int, Any]], indent: int | None = 2) -> bytes:
    """As NeMo-RL's ``tests/json_dump_tb_logs.py`` writes what its event files hold."""
    return json.dumps(columns, indent=indent).encode()


STEPS = st.lists(st.integers(0, 10**6), min_size=1, max_size=20, unique=True)


@given(STEPS, st.data())
def test_a_table_is_turned_into_the_records_of_its_steps(reported: list[int], data: st.DataObject) -> None:
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**6), 10**6)
    rewards = {step: data.draw(numbers) for step in reported}
    losses = {step: data.draw(numbers) for step in reported if data.draw(st.booleans())}
    text = table({"train/reward": rewards, "train/loss": losses}, data.draw(st.sampled_from([None, 2])))
    found = read(MetricTable(), text)

    assert MetricTable.recognises(text)
    assert not TrainerState.recognises(text)
    assert found == [
        Record(
            step, {"train/reward": rewards[step]} | ({"train/loss": losses[step]} if step in losses else {})
        )
        for step in sorted(reported)
    ]


def test_what_a_table_holds_of_the_setup_or_by_seconds_is_not_a_step() -> None:
    text = table(
        {
            "ray/node.0.gpu.0.util": {0: 0.0, 652: 3.0},
            "ray/ray/ray_step": {0: 0.0, 652: 652.0},
            "timing/setup/total_setup_time_s": {0: 146.8},
            "train/reward": {1: 0.25, 2: 0.5},
            "validation/accuracy": {2: 0.75},
        }
    )

    assert read(MetricTable(), text) == [
        Record(1, {"train/reward": 0.25}),
        Record(2, {"train/reward": 0.5, "validation/accuracy": 0.75}),
    ]


def test_a_table_that_grew_reports_its_new_steps_and_a_half_written_one_nothing() -> None:
    source = MetricTable()
    read(source, table({"train/reward": {1: 0.25}}))
    longer = table({"train/reward": {1: 0.25, 2: 0.5}})
    with pytest.raises(ValueError, match="history"):
        read(source, longer[:-9])

    assert steps(read(source, longer)) == [2]


@pytest.mark.parametrize(
    "columns",
    [
        {"train/reward": 0.5},
        {"train/reward": {"mean": 0.5}},
        {"train/reward": {"1" * 20: 0.5}},
        {"vocabulary": {"1": 5, "2": 6}},
    ],
)
def test_other_objects_are_no_table(columns: dict[str, Any]) -> None:
    assert not MetricTable.recognises(json.dumps(columns).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["step", "reward", "epoch", "train_runtime", "x"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(st.lists(JSON, max_size=5), st.lists(JSON, max_size=5))
def test_random_histories_never_raise(first: list[Any], second: list[Any]) -> None:
    source = TrainerState()
    for entries in (first, second):
        text = json.dumps({"log_history": entries}).encode()
        source.recognises(text)
        assert all(step >= 0 for step in steps(read(source, text)))
