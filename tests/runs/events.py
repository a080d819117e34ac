"""TensorBoard's own writers and readers of event files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader, RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.util.tensor_util import make_ndarray

from exporter.runs.formats.tensorboard import TensorBoard
from exporter.runs.readers import frames
from exporter.runs.signals.record import Record

Scalar = tuple[float, int, str, float]
"""Wall time, step, tag, value."""


def event_file(folder: Path) -> Path:
    """The newest event file below a folder."""
    return max(folder.rglob("*tfevents*"), key=lambda path: path.stat().st_mtime_ns)


def raw(path: Path) -> list[bytes]:
    """The payloads that TensorBoard reads out of a file."""
    return list(RawEventFileLoader(str(path)).Load())


def reported(path: Path) -> Iterator[Scalar]:
    """The scalars that TensorBoard reads out of a file."""
    plugins: dict[str, str] = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            plugin = plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            if plugin == "scalars":
                yield event.wall_time, event.step, value.tag, make_ndarray(value.tensor).item()


def records(payloads: Iterable[bytes], source: TensorBoard | None = None) -> list[Record]:
    """What our source makes of them, up to the log's pause."""
    source = source or TensorBoard()
    found = [event for payload in payloads for event in source.parse(payload)]
    return [record for record in (*found, *source.flush()) if isinstance(record, Record)]


def read(path: Path) -> list[Record]:
    return records(frames.split(path.read_bytes()).lines)


def scalars(found: Iterable[Record]) -> list[tuple[int, str, float]]:
    return [(record.step, tag, value) for record in found for tag, value in record.values.items()]


def event(step: int, *values: Summary.Value, wall_time: float = 1.5, **more: Any) -> bytes:
    """One event with these values, as TensorFlow's library writes it."""
    written = Event(wall_time=wall_time, step=step, **more)
    if values:
        written.summary.value.extend(values)
    return written.SerializeToString()


def scalar(step: int, tag: str, value: float) -> bytes:
    return event(step, Summary.Value(tag=tag, simple_value=value))
