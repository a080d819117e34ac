"""The folder of one run: its event files, and what is in them already."""

from __future__ import annotations

import os
import socket
import time
from array import array
from pathlib import Path
from typing import NamedTuple

from exporter.runs.readers.frames import LIMIT, split
from stepwatch.tensorboard import events

OURS = "stepwatch"
"""How the names of our files end. TensorBoard reads each that has `tfevents` in its name."""


class Point(NamedTuple):
    """A record: its attempt, when it was logged in seconds since the epoch, and 4 bytes for each tag."""

    attempt: int
    time: float
    step: int
    tags: tuple[str, ...]
    numbers: array[float]


class RunFolder:
    """Writes the events of a run, each once, even if they are passed repeatedly.

    Attributes:
        begun: When the last attempt began, in seconds since the epoch; ``None`` before any event.
        written: How many bytes were written by now.
    """

    def __init__(self, folder: Path) -> None:
        """Read what earlier processes wrote.

        Raises:
            OSError: It cannot be read.
        """
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
        reader = events.Reader()
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
        """Take a record; what is known of it already is left out.

        Raises:
            OSError: As of ``write``, which is called once there is much to write.
        """
        if point.attempt < self._attempt:
            return
        if point.attempt > self._attempt:
            # A trainer that is resumed may validate first: the values of that step were logged before.
            known = self._last.keys()
            first = point.step if 2 * len(known & set(point.tags)) >= len(known) else point.step + 1
            self._begin(point.attempt, point.time, first)
            self._unwritten.append(events.start(point.time, first, point.attempt))
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
        self._unwritten.append(events.scalars(point.time, step, tags, numbers.tobytes()))
        self._size += len(self._unwritten[-1])
        if self._size > LIMIT:
            self.write()

    def add_text(self, at: float, step: int, tag: str, words: str) -> None:
        """Take a text of the last attempt; of one tag, later ones must be of later steps."""
        earlier = self.begun is None or (self._attempt and at < self.begun)
        if earlier or self._last.get(tag, -1) >= step:
            return
        self._last[tag] = step
        self._unwritten.append(events.text(at, step, tag, words))

    def write(self) -> None:
        """Write what was taken since the last time.

        Raises:
            OSError: They cannot be written. The next process begins another file: half an event at
                the end of this one does no harm.
        """
        if not self._unwritten:
            return
        if self._out is None:
            self._out = self._create()
        data = b"".join(self._unwritten)
        view = memoryview(data)
        while view:
            view = view[os.write(self._out, view) :]
        self._unwritten.clear()
        self._size = 0
        self.written += len(data)

    def _create(self) -> int:
        """Begin a file: TensorBoard reads those of a folder in the order of their names."""
        self._folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{now:017.6f}.{socket.gethostname()}.{os.getpid()}.{OURS}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        out = os.open(self._folder / name, flags, 0o644)
        self._unwritten.insert(0, events.version(now))
        return out

    def close(self) -> None:
        """Close its file; the next event would begin another one."""
        if self._out is not None:
            os.close(self._out)
            self._out = None
