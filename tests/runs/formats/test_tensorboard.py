"""TensorBoard's event files."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR as SCALAR
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.util.tensor_util import make_tensor_proto
from tensorboardX import SummaryWriter

from exporter.runs.formats.protobuf import coded, varint
from exporter.runs.formats.tensorboard import LONGEST_TAG, TAGS, TensorBoard
from exporter.runs.signals.record import STEP_LIMIT, Record
from tests.runs import events
from tests.runs.events import event, records, scalar, scalars

VALUES = [0.5, 0.0, -0.0, -1.25e-20, 3e38, math.inf, -math.inf]


def same(found: list[Record], path: Path) -> None:
    """Are these the steps, tags and values that TensorBoard reads, in order? Compares NaN as well."""
    expected = [(step, tag, value) for _, step, tag, value in events.reported(path)]
    assert repr(scalars(found)) == repr(expected)


def plugin(name: str, of_kind: int | None = None) -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name), data_class=of_kind)


def tensor(tag: str, value: TensorProto, metadata: SummaryMetadata | None = None) -> Summary.Value:
    return Summary.Value(tag=tag, tensor=value, metadata=metadata)


def test_pytorchs_writer_is_read(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step, value in enumerate(VALUES):
            writer.add_scalar("critic/score/mean", value, step)
            writer.add_scalar("belohnung/größe", value / 2, step)
            writer.add_text("prompt", "1 + 1", step)
            writer.add_histogram("weights", np.arange(9), step)
        writer.add_scalar("critic/score/mean", 7.0, 10**12)
    path = events.event_file(tmp_path)

    found = events.read(path)

    same(found, path)
    assert [record.step for record in found] == [*range(len(VALUES)), 10**12]
    assert found[0].values == {"critic/score/mean": 0.5, "belohnung/größe": 0.25}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(
            (kind, value)
            for kind in ("f4", "f8", "f2", "i1", "i2", "i4", "i8")
            for value in (0, 1, 100, -1, -100)
        ),
        *((kind, value) for kind in ("u1", "u2", "u4", "u8") for value in (0, 1, 200)),
    ],
)
def test_tensors_of_every_kind_of_number_are_read(kind: str, value: int) -> None:
    number = np.array(value, kind)
    in_memory = make_tensor_proto(number)
    listed = _listed(in_memory.dtype, kind, number)

    for each in (in_memory, listed):
        (found,) = records([event(3, tensor("a", each, plugin("scalars")))])
        assert (found.step, found.values) == (3, {"a": float(value)})


def _listed(dtype: int, kind: str, number: np.ndarray[Any, Any]) -> TensorProto:
    """The number as a list of one, in the field that TensorFlow has for its kind."""
    if kind == "f2":
        return TensorProto(dtype=dtype, half_val=[int(number.view("u2"))])
    names = {"f4": "float_val", "f8": "double_val", "i8": "int64_val", "u4": "uint32_val", "u8": "uint64_val"}
    return TensorProto(dtype=dtype, **{names.get(kind, "int_val"): [number.item()]})


@pytest.mark.parametrize(
    "other",
    [
        tensor("a", make_tensor_proto(np.zeros(2, "f4")), plugin("scalars")),
        tensor("a", TensorProto(dtype=3, int_val=[1, 2]), plugin("scalars")),
        tensor("a", TensorProto(dtype=1), plugin("scalars")),
        tensor("a", make_tensor_proto(["text"]), plugin("text")),
        tensor("a", make_tensor_proto(np.float32(1)), plugin("histograms")),
        tensor("a", make_tensor_proto(np.float32(1))),
        Summary.Value(tag="a", image=Summary.Image(height=1)),
        Summary.Value(tag="a", metadata=plugin("scalars")),
    ],
)
def test_what_is_not_a_scalar_is_left_out(other: Summary.Value) -> None:
    (found,) = records([event(3, other, Summary.Value(tag="b", simple_value=1.0))])

    assert found.values == {"b": 1.0}


def test_a_plugin_named_once_counts_for_all_later_events() -> None:
    one = make_tensor_proto(np.float32(1))
    first = [event(1, tensor("a", one, plugin("scalars", of_kind))) for of_kind in (None, SCALAR)]
    second = event(2, tensor("a", one))

    assert [scalars(records([each, second])) for each in first] == [[(1, "a", 1.0), (2, "a", 1.0)]] * 2
    assert records([second]) == []


def test_a_step_is_complete_when_the_next_begins_or_the_log_pauses() -> None:
    source = TensorBoard()

    assert list(source.parse(scalar(1, "a", 0.5))) == []
    assert list(source.parse(scalar(1, "b", 1.5))) == []
    assert list(source.parse(scalar(2, "a", 2.5))) == [Record(1, {"a": 0.5, "b": 1.5}, 1.5)]
    assert list(source.flush()) == [Record(2, {"a": 2.5}, 1.5)]
    assert list(source.flush()) == []
    assert list(source.parse(scalar(2, "b", 3.5))) == []
    assert list(source.parse(scalar(3, "c", 4.5))) == [Record(2, {"b": 3.5}, 1.5)]
    assert list(source.flush()) == [Record(3, {"c": 4.5}, 1.5)]


def test_a_tag_logged_twice_in_a_step_is_two_records() -> None:
    found = records([scalar(1, "a", 1), scalar(1, "b", 2), scalar(1, "a", 3)])

    assert [record.values for record in found] == [{"a": 1.0, "b": 2.0}, {"a": 3.0}]


def test_what_is_gathered_is_bounded() -> None:
    found = records(scalar(1, f"tag/{number}", 0.5) for number in range(TAGS + 5))

    assert [len(record.values) for record in found] == [TAGS, 5]


def test_what_is_known_of_tags_is_bounded() -> None:
    one = make_tensor_proto(np.float32(1))
    source = TensorBoard()
    known = [event(1, tensor(f"{number}/a", one, plugin("scalars"))) for number in range(TAGS + 1)]
    assert len(scalars(records(known, source))) == TAGS

    later = records((event(2, tensor(f"{number}/a", one)) for number in (0, TAGS - 1, TAGS)), source)

    assert scalars(later) == [(2, "0/a", 1.0), (2, f"{TAGS - 1}/a", 1.0)]


def test_no_more_streams_than_tags_are_distinguished() -> None:
    logged = [scalar(5, f"{number}/a", 1) for number in range(TAGS)] + [
        scalar(step, "new/a", 1) for step in (1, 2)
    ]

    assert {record.stream for record in records(logged)} == {""}


def test_the_marks_of_a_restart_do_no_harm() -> None:
    marks = [
        event(4, session_log=SessionLog(status=SessionLog.START)),
        event(0, file_version="brain.Event:2"),
    ]

    found = records([scalar(5, "a", 1), *marks, scalar(4, "a", 2), scalar(5, "a", 3)])

    assert scalars(found) == [(5, "a", 1.0), (4, "a", 2.0), (5, "a", 3.0)]


def test_rollouts_and_updates_counted_apart_are_no_resume() -> None:
    """Four updates for each rollout, as slime logs them."""
    logged = [
        payload
        for rollout in range(3)
        for payload in (
            scalar(rollout, "rollout/raw_reward", rollout),
            *(scalar(update, "train/loss", update) for update in range(4 * rollout, 4 * rollout + 4)),
            scalar(rollout, "perf/step_time", rollout),
        )
    ]

    found = records(logged)

    streams = {stream: [r.step for r in found if r.stream == stream] for stream in ("", "rollout", "perf")}
    assert all(steps == sorted(steps) for steps in streams.values())
    assert [step for step, tag, _ in scalars(found) if tag == "train/loss"] == list(range(12))
    assert [step for step, tag, _ in scalars(found) if tag == "rollout/raw_reward"] == [0, 1, 2]


def test_what_is_counted_apart_may_log_a_step_late_or_with_the_others() -> None:
    steps = [("eval/a", 3), ("train/a", 4), ("eval/b", 3), ("train/a", 5), ("eval/a", 5), ("train/b", 5)]

    found = records(scalar(step, tag, 0.5) for tag, step in steps)

    assert [(record.stream, record.step) for record in found] == [
        ("", 3), ("", 4), ("eval", 3), ("", 5), ("eval", 5), ("", 5),
    ]  # fmt: skip


def test_what_is_counted_apart_can_resume_as_well() -> None:
    steps = [("train/a", 5), ("eval/a", 2), ("train/a", 6), ("eval/a", 3), ("train/a", 4), ("eval/a", 3)]

    found = records(scalar(step, tag, 0.5) for tag, step in steps)

    assert [(record.stream, record.step) for record in found] == [
        ("", 5), ("eval", 2), ("", 6), ("eval", 3), ("", 4), ("eval", 3),
    ]  # fmt: skip


def test_loads_that_nemo_rl_logs_by_seconds_are_no_steps() -> None:
    load = scalar(1, "ray/node.0.gpu.3.util", 90)
    clock = scalar(652, "ray/ray/ray_step", 652)
    found = records([load, scalar(1, "train/reward", 0.5), clock, scalar(1, "ray/wait", 1.5), load])

    assert scalars(found) == [(1, "train/reward", 0.5), (1, "ray/wait", 1.5)]


@pytest.mark.parametrize("step", [-1, STEP_LIMIT, 2**63 - 1, -(2**63)])
def test_absurd_steps_are_a_value_error(step: int) -> None:
    source = TensorBoard()

    with pytest.raises(ValueError, match="invalid record"):
        list(source.parse(scalar(step, "a", 0.5)))
    assert records([scalar(STEP_LIMIT - 1, "a", 0.5)], source)[0].step == STEP_LIMIT - 1


def test_a_tag_of_pages_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="invalid record"):
        records([scalar(1, "a" * (LONGEST_TAG + 1), 0.5)])


@pytest.mark.parametrize("time", [math.nan, math.inf])
def test_an_invalid_time_is_left_out(time: float) -> None:
    value = Summary.Value(tag="a", simple_value=0.5)

    assert records([event(1, value, wall_time=time)])[0].time is None


@pytest.mark.parametrize(
    "line", [b"", b"brain.Event:2", b'{"brain.Event:": 2}', scalar(1, "brain.Event:2", 1)]
)
def test_other_lines_are_not_recognised(line: bytes) -> None:
    assert not TensorBoard().recognises(line)


@given(
    st.integers(0, STEP_LIMIT - 1),
    st.dictionaries(st.text(max_size=200), st.floats(width=32), min_size=1, max_size=4),
    st.floats(min_value=1, allow_infinity=False),
)
def test_what_is_written_is_what_is_read(step: int, values: dict[str, float], wall_time: float) -> None:
    together = [
        event(step, *(Summary.Value(tag=t, simple_value=v) for t, v in values.items()), wall_time=wall_time)
    ]
    one_by_one = [
        event(step, Summary.Value(tag=t, simple_value=v), wall_time=wall_time) for t, v in values.items()
    ]

    for payloads in (together, one_by_one):
        (found,) = records(payloads)
        assert (found.step, repr(found.values)) == (step, repr(values))
        assert found.time == wall_time


_MORE = b"\x78\x01"
"""A field that no event has: such an event is none of the usual form."""

_LOGGED = st.tuples(
    st.sampled_from(["a", "b", "", "/a", "x/a", "x/b", "y/a", "y/b", "ray/a", "ray/node.0.ms"]),
    st.integers(0, 3) | st.sampled_from([127, 128, 2**14, STEP_LIMIT - 1, STEP_LIMIT]),
    st.booleans(),
)


def _logged(tag: str, step: int, as_tensor: bool, value: float) -> bytes:
    number = make_tensor_proto(np.float32(value))
    return event(step, tensor(tag, number, plugin("scalars"))) if as_tensor else scalar(step, tag, value)


@given(st.lists(_LOGGED | st.none(), max_size=40))
def test_events_of_the_usual_form_are_read_as_any_others(logged: list[tuple[str, int, bool] | None]) -> None:
    """``None``: the log pauses."""
    usual, other = TensorBoard(), TensorBoard()

    for number, each in enumerate(logged):
        if each is None:
            assert list(usual.flush()) == list(other.flush())
            continue
        payload = _logged(*each, number)
        if each[1] < STEP_LIMIT:
            assert list(usual.parse(payload)) == list(other.parse(payload + _MORE))
            continue
        for source, line in ((usual, payload), (other, payload + _MORE)):
            with pytest.raises(ValueError, match="invalid record"):
                list(source.parse(line))
    assert list(usual.flush()) == list(other.flush())


def test_an_event_whose_first_byte_is_damaged_adds_nothing() -> None:
    source = TensorBoard()
    found = records([scalar(1, "a/b", 0.5), scalar(1, "a/c", 1.5), scalar(2, "a/b", 2.5)], source)
    assert [record.values for record in found] == [{"a/b": 0.5, "a/c": 1.5}, {"a/b": 2.5}]

    list(source.parse(scalar(3, "a/b", 3.5)))
    with pytest.raises(ValueError, match="invalid message"):
        list(source.parse(b"\xff" + scalar(3, "a/c", 4.5)[1:]))
    assert list(source.flush()) == [Record(3, {"a/b": 3.5}, 1.5)]


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    written = coded(number)

    assert varint(written, 0) == (number, len(written))


ORDINARY = [
    scalar(300, "train/reward", 0.5),
    event(300, tensor("train/reward", make_tensor_proto(np.float32(1)), plugin("scalars"))),
    event(300, tensor("a", TensorProto(dtype=9, int64_val=[-5]), plugin("scalars"))),
]


@given(st.sampled_from(ORDINARY), st.data())
def test_damaged_events_are_events_or_a_value_error(line: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(line) - 1))
    noise = data.draw(st.binary(max_size=3))
    with suppress(ValueError):
        records([line[:place] + noise + line[place + len(noise) :]])
