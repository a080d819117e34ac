"""The event files of one run for TensorBoard (tensorflow/core/util/event.proto, framework/summary.proto)."""

from __future__ import annotations

import os
import socket
import struct
import time
from array import array
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from exporter.runs.formats.protobuf import EIGHT_BYTES, FOUR_BYTES, SIZED, VARINT, coded, fields, key
from exporter.runs.readers.frames import LIMIT, frame, split

OURS = "stepwatch"
"""How the names of our files end. TensorBoard reads each that has `tfevents` in its name."""

_double, _float = struct.Struct("<d"), struct.Struct("<f")
_DT_STRING = 7
_START = 1
_ATTEMPT = "attempt "
_TIME, _STEP, _SUMMARY = key(1, EIGHT_BYTES), key(2, VARINT), key(5, SIZED)
_LOG, _LAYOUT = key(7, SIZED), key(10, SIZED)
_VALUE = _TAG = key(1, SIZED)
_MESSAGE = key(3, SIZED)


def _sized(number: int, content: bytes) -> bytes:
    return bytes([key(number, SIZED)]) + coded(len(content)) + content


def _event(time: float, step: int, number: int, content: bytes, more: bytes = b"") -> bytes:
    """A frame with an event whose field of that number has this content."""
    head = bytes([key(1, EIGHT_BYTES)]) + _double.pack(time) + bytes([key(2, VARINT)]) + coded(step)
    return frame(head + _sized(number, content) + more)


@lru_cache(maxsize=1 << 15)
def _before(tag: str) -> bytes:
    """The bytes before the value of a tag."""
    value = _sized(1, tag.encode("utf-8", "replace")) + bytes([key(2, FOUR_BYTES)])
    return bytes([key(1, SIZED)]) + coded(len(value) + _float.size) + value


@lru_cache(maxsize=1 << 12)
def _layout(tags: tuple[str, ...]) -> bytes:
    """The field with the writer of an event, of which only readers of our own make use: which tags it has."""
    digest = blake2b("\0".join(tags).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return _sized(10, _sized(1, f"stepwatch {digest}".encode()))


def _scalars(time: float, step: int, tags: tuple[str, ...], numbers: bytes) -> bytes:
    """The values of a step: ``numbers`` holds four bytes for each tag, as floats in memory."""
    parts: list[bytes] = []
    for place, tag in enumerate(tags):
        parts += (_before(tag), numbers[4 * place : 4 * place + 4])
    return _event(time, step, 5, b"".join(parts), _layout(tags))


def _text(time: float, step: int, tag: str, words: str) -> bytes:
    """A text in Markdown."""
    shape = _sized(2, _sized(2, bytes([key(1, VARINT)]) + coded(1)))
    tensor = bytes([key(1, VARINT), _DT_STRING]) + shape + _sized(8, words.encode("utf-8", "replace"))
    plugin = _sized(9, _sized(1, _sized(1, b"text")))
    value = _sized(1, tag.encode("utf-8", "replace")) + plugin + _sized(8, tensor)
    return _event(time, step, 5, _sized(1, value))


def _start(time: float, step: int, attempt: int) -> bytes:
    """The start of another attempt: TensorBoard drops what it has from that step on."""
    log = bytes([key(1, VARINT), _START]) + _sized(3, f"{_ATTEMPT}{attempt}".encode())
    return _event(time, step, 7, log)


class _Read(NamedTuple):
    """What an event of this module says: ``attempt`` is the one that begins with it, if any."""

    time: float
    step: int
    tags: tuple[str, ...]
    attempt: int | None


class _Reader:
    """Reads events that this module wrote, those with the same tags as another one at little cost."""

    def __init__(self) -> None:
        self._tags: dict[bytes, tuple[str, ...]] = {}

    def read(self, payload: bytes) -> _Read:
        """Read an event. Raises ``ValueError``."""
        found = dict(fields(payload))
        time = _double.unpack(found.get(_TIME, bytes(8)))[0]
        layout = found.get(_LAYOUT, b"")
        tags = self._tags.get(layout)
        if tags is None:
            values = (value for kind, value in fields(found.get(_SUMMARY, b"")) if kind == _VALUE)
            tags = tuple(dict(fields(value)).get(_TAG, b"").decode() for value in values)
            if layout:
                self._tags[layout] = tags
        attempt = None
        if log := found.get(_LOG):
            words = dict(fields(log)).get(_MESSAGE, b"").decode()
            if words.startswith(_ATTEMPT):
                attempt = int(words.removeprefix(_ATTEMPT))
        return _Read(time, found.get(_STEP, 0), tags, attempt)


class Point(NamedTuple):
    """A record: its attempt, when it was logged in seconds since the epoch, and 4 bytes for each tag."""

    attempt: int
    time: float
    step: int
    tags: tuple[str, ...]
    numbers: array[float]


class RunFolder:
    """Writes the events of a run, each once, even if they are passed repeatedly."""

    def __init__(self, folder: Path) -> None:
        """Read what earlier processes wrote. Raises ``OSError``."""
        self.begun: float | None = None
        self.written = 0
        self._folder = folder
        self._attempt = 0
        self._last: dict[str, int] = {}
        self._out: int | None = None
        self._unwritten: list[bytes] = []
        self._size = 0
        for path in sorted(folder.glob(f"*tfevents*.{OURS}")):
            self._read(path)

    def _read(self, path: Path) -> None:
        reader = _Reader()
        with path.open("rb") as file:
            rest = b""
            while block := file.read(LIMIT):
                found = split(rest + block)
                rest = (rest + block)[found.used :]
                for payload in found.lines:
                    event = reader.read(payload)
                    if event.attempt is not None:
                        self._begin(event.attempt, event.time, event.step)
                    elif event.tags and self.begun is None:
                        self.begun = event.time
                    self._last.update(dict.fromkeys(event.tags, event.step))

    def _begin(self, attempt: int, at: float, step: int) -> None:
        """Another attempt: TensorBoard drops what it has from that step on."""
        self._attempt, self.begun = attempt, at
        self._last = {tag: min(last, step - 1) for tag, last in self._last.items()}

    def add(self, point: Point) -> None:
        """Take a record; what is known of it already is left out. Raises ``OSError``."""
        if point.attempt < self._attempt:
            return
        if point.attempt > self._attempt:
            # A trainer that is resumed may validate first: the values of that step were logged before.
            known = self._last.keys()
            first = point.step if 2 * len(known & set(point.tags)) >= len(known) else point.step + 1
            self._begin(point.attempt, point.time, first)
            self._unwritten.append(_start(point.time, first, point.attempt))
        if self.begun is None:
            self.begun = point.time
        last, step = self._last, point.step
        new = [place for place, tag in enumerate(point.tags) if last.get(tag, -1) < step]
        if not new:
            return
        tags, numbers = point.tags, point.numbers
        if len(new) < len(tags):
            tags, numbers = tuple(tags[place] for place in new), array("f", (numbers[place] for place in new))
        last.update(dict.fromkeys(tags, step))
        self._unwritten.append(_scalars(point.time, step, tags, numbers.tobytes()))
        self._size += len(self._unwritten[-1])
        if self._size > LIMIT:
            self.write()

    def add_text(self, at: float, step: int, tag: str, words: str) -> None:
        """Take a text of the last attempt; of one tag, later ones must be of later steps."""
        earlier = self.begun is None or (self._attempt and at < self.begun)
        if earlier or self._last.get(tag, -1) >= step:
            return
        self._last[tag] = step
        self._unwritten.append(_text(at, step, tag, words))

    def write(self) -> None:
        """Write what was taken since the last time. Raises OSError: the next process begins a new file."""
        if not self._unwritten:
            return
        if self._out is None:
            # Begin a file: TensorBoard reads those of a folder in the order of their names.
            self._folder.mkdir(parents=True, exist_ok=True)
            now = time.time()
            name = f"events.out.tfevents.{now:017.6f}.{socket.gethostname()}.{os.getpid()}.{OURS}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._out = os.open(self._folder / name, flags, 0o644)
            self._unwritten.insert(
                0, frame(bytes([key(1, EIGHT_BYTES)]) + _double.pack(now) + _sized(3, b"brain.Event:2"))
            )
        data = b"".join(self._unwritten)
        view = memoryview(data)
        while view:
            view = view[os.write(self._out, view) :]
        self._unwritten.clear()
        self._size = 0
        self.written += len(data)

    def close(self) -> None:
        """Close its file; the next event would begin another one."""
        if self._out is not None:
            os.close(self._out)
            self._out = None
