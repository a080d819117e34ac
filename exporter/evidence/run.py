"""What a run itself left: the end of its logs, and its last steps as the run exporter reads them."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.evidence.bounded import Item
from exporter.runs.files import launch
from exporter.runs.files.state_file import StateFolder
from exporter.runs.logs import find
from exporter.runs.logs.find import Found
from exporter.runs.logs.log import Log
from exporter.runs.logs.names import gathered, printable, run_name
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.readers.content import content
from exporter.runs.readers.follow import LAST_LINE_SECONDS
from exporter.runs.signals.record import Event, Record

TAIL_BYTES = 2 * 1024 * 1024
"""Of each file of a log."""
LEAD_BYTES = 64 * 1024
MOST_FILES = 6
STEPS = 200
READ_WHOLE_BYTES = 64 * 1024 * 1024
"""Of a longer text the head is read, which may name columns and the trainer, and the end."""
HEAD_BYTES = 256 * 1024
END_BYTES = 24 * 1024 * 1024
_AS_LINES = ("text", "events")


@dataclass(frozen=True)
class RunLogs:
    """The logs that lead to the name of a run.

    Attributes:
        found: The logs.
        part: What the log calls the run, where it holds several; else empty.
    """

    found: tuple[Found, ...] = ()
    part: str = ""

    @property
    def files(self) -> list[Path]:
        """The newest files, the last one first."""
        parts = [part for found in self.found for part in found.parts]
        return sorted(dict.fromkeys(parts), key=_changed, reverse=True)[:MOST_FILES]


def logs_of(run: str, paths: Sequence[str]) -> tuple[RunLogs, list[str]]:
    """Find the logs of a run below the watched folders; returns them, and the names that all logs give."""
    exact: list[Found] = []
    within: list[tuple[str, Found]] = []
    known: set[str] = set()
    for found in gathered(find.files(paths)):
        if found.path.name.endswith(launch.SUFFIX):
            continue
        known.add(run_name(found.relative))
        names = {run_name(found.relative), printable(found.relative), printable(found.path.absolute())}
        if run in names:
            exact.append(found)
        within += [(name, found) for name in names if run.startswith(f"{name}/")]
    if exact or not within:
        return RunLogs(tuple(exact)), sorted(known)
    longest = max((name for name, _ in within), key=len)
    logs = tuple(found for name, found in within if name == longest)
    return RunLogs(logs, run[len(longest) + 1 :]), sorted(known)


def tails(logs: RunLogs) -> Iterator[Item]:
    """The end of each file as it is, and what the wrapper wrote beside it."""
    for path in logs.files:
        beside = launch.beside(path)
        if beside.exists():
            yield _tail(beside, launch.MOST_BYTES)
        if content(path) in ("text", "document"):
            yield _tail(path, TAIL_BYTES)
        else:
            yield Item(f"logs/{_flat(path)}", str(path), missing="no text: its last steps are in signals.csv")


def tail_of(path: Path, most: int) -> tuple[bytes, int]:
    """The end of a file, after some bytes that stand before it; and how many these are."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - most)
        # NUL bytes: holes, such as a file begins with that was emptied under its writer.
        lead, text = (
            os.pread(file.fileno(), length, place).replace(b"\0", b"")
            for length, place in ((min(start, LEAD_BYTES), max(0, start - LEAD_BYTES)), (most, start))
        )
        return lead + text, len(lead)


def _tail(path: Path, most: int) -> Item:
    text, lead = tail_of(path, most)
    cut = f"its last {most >> 10} KiB" if path.stat().st_size > most else ""
    return Item(f"logs/{_flat(path)}", str(path), text, missing=cut, lead=lead)


def _flat(path: Path) -> str:
    return "_".join(path.parts[-3:]).replace("/", "") or "log"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def signals(logs: RunLogs, options: Options) -> Iterator[Item]:
    """The last steps as tables: our signals, and the trainer's own keys."""
    for number, found in enumerate(sorted(logs.found, key=lambda each: each.changed, reverse=True)):
        if number >= MOST_FILES:
            break
        steps = Steps()
        note = ""
        try:
            shorter = _shortened(found)
            note = f"read from the last {END_BYTES >> 20} MiB of the log" if shorter is not found else ""
            read(shorter, options, steps)
        except OSError as problem:
            note = f"cannot be read: {problem.strerror}"
        suffix = f"-{number}" if number else ""
        rows = steps.rows.get(logs.part) or (steps.rows.get("") if not logs.part else None)
        if not rows:
            yield Item(f"signals{suffix}.csv", str(found.path), missing=note or "no step could be read")
            continue
        yield Item(f"signals{suffix}.csv", str(found.path), _table(rows, "signals"), missing=note)
        yield Item(f"keys{suffix}.csv", str(found.path), _table(rows, "keys"), missing=note)


class Row(NamedTuple):
    """A step: when it was logged, our signals, and values by the trainer's own keys."""

    step: int
    time: float | None
    signals: Mapping[str, float]
    keys: Mapping[str, Any]


class Steps:
    """The last steps of each run of a log: step, time, signals, and values by the trainer's keys."""

    def __init__(self, most: int = STEPS) -> None:
        self.rows: dict[str, list[Row]] = {}
        self._most = most

    def note(self, name: str, run: Run, record: Record, clock: Clock) -> None:
        """Take a record."""
        found = run.reading.signals(record.values)
        rows = self.rows.setdefault(name, [])
        row = Row(record.step, clock.of(record), found, dict(record.values))
        if rows and rows[-1].step == record.step:
            before = rows.pop()
            row = Row(row.step, before.time, {**before.signals, **row.signals}, {**before.keys, **row.keys})
        rows.append(row)
        del rows[: -self._most]


class _Noting(RunSet):
    """The runs of a log, whose records are noted."""

    def __init__(self, note: Callable[[str, Run, Record, Clock], None], *about: Any, **known: Any) -> None:
        super().__init__(*about, **known)
        self._note = note

    def take(self, event: Event, clock: Clock) -> None:
        super().take(event, clock)
        run = self.runs.get(event.run)
        if run is not None and isinstance(event, Record):
            self._note(event.run, run, event, clock)


def read(found: Found, options: Options, steps: Steps) -> None:
    """Read a log to its end.

    Raises:
        OSError: It cannot be read.
    """
    log = Log(found, StateFolder(None), Health(), options, partial(_Noting, steps.note))
    while log.more:
        log.read(time.time(), time.monotonic())
    log.read(time.time() + LAST_LINE_SECONDS, time.monotonic())


def _shortened(found: Found) -> Found:
    """A log that can be read in seconds: itself, or the head and the end of a long text, in memory."""
    parts: list[Path] = []
    for part in found.parts[-MOST_FILES:]:
        size, kind = part.stat().st_size, content(part)
        if size <= READ_WHOLE_BYTES or kind not in _AS_LINES:
            parts.append(part)
            continue
        with part.open("rb") as file:
            head = os.pread(file.fileno(), HEAD_BYTES, 0)
            end = os.pread(file.fileno(), END_BYTES, size - END_BYTES)
        if kind == "text":  # a reader of event files finds the next frame by itself
            head, end = head[: head.rfind(b"\n") + 1], end[end.find(b"\n") + 1 :]
        copy = os.memfd_create(part.name[:200])
        with os.fdopen(os.dup(copy), "wb") as out:
            out.write(head + end)
        parts.append(Path(f"/proc/self/fd/{copy}"))
    if tuple(parts) == found.parts:
        return found
    return replace(found, path=parts[-1], root=parts[-1].parent, parts=tuple(parts))


def _table(rows: Sequence[Row], field: str) -> bytes:
    values: list[Mapping[str, Any]] = [getattr(row, field) for row in rows]
    columns = dict.fromkeys(name for each in values for name in each)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["step", "time", *columns])
    for row, each in zip(rows, values, strict=True):
        writer.writerow([row.step, _clock(row.time), *(each.get(name, "") for name in columns)])
    return out.getvalue().encode("utf-8", "replace")


def _clock(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")


def writers(logs: RunLogs, holders: Callable[[Collection[Path]], Iterable[str]]) -> set[str]:
    """The ids of the processes that write the logs, or keep what is written beside them."""
    files = {path for found in logs.found for path in found.parts}
    return set(holders(files | {launch.beside(path) for path in files}))
