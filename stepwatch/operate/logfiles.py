"""The logs that users name on a command line, found as the stack finds them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from exporter.runs.files.state import State
from exporter.runs.formats.base import load_json
from exporter.runs.formats.flat import flattened, measured_values
from exporter.runs.logs import find
from exporter.runs.logs.find import Found
from exporter.runs.logs.log import Log
from exporter.runs.logs.names import gathered
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Options
from exporter.runs.model.run_set import RunSet, RunSets
from exporter.runs.readers.follow import LAST_LINE_SECONDS

MOST_BYTES = 2 * 1024 * 1024  # of a part of a log, from its end, are read for its last step
NOT_READ = {
    "empty": "empty",
    "binary": "no text",
    "document": "JSON without a history of steps",
    "notebook": "a notebook without a trainer's table of steps. Fix: save it after a training with TRL or "
    "Transformers, or name their trainer_state.json or event files",
    "text": "no trainer records",
    "no_records": "no trainer records",
    "compressed": "no trainer records",
    "events": "no event",
    "wandb": "W&B's file without a step yet: it is written 32 KiB at a time",
    "swanlab": "no scalar",
    "database": "no trainer records",
    "log": "a table without a row so far",
}
"""What a file without a run is."""


MOST_KEYS = 8
UNKNOWN = (
    "JSON without a known key of a trainer: {}. Fix: map them below signals: in config.yaml, such as "
    'reward: ["my/points"]'
)


class UnreadError(Exception):
    """Raised for a log that cannot be read; says why."""


class NoRunError(UnreadError):
    """Raised for a file without a run; says what it is instead."""


def logs(places: Sequence[str], watched: Path) -> tuple[list[Found], list[str]]:
    """The logs in folders, files and globs (a file that is named is meant alone), and places without any."""
    root = watched.absolute()
    named: dict[Path, Found] = {}
    others: dict[Path, Found] = {}
    bare = []
    for place in places:
        files = list(find.files([place]))
        if not files:
            bare.append(place)
        for file in files:
            path = file.path.absolute()
            if path.is_relative_to(root):
                file = replace(file, path=path, root=root, parts=(path,))  # noqa: PLW2901
            # Two places may lead to one file.
            (named if Path(place).is_file() else others).setdefault(file.path.resolve(), file)
    found = [*named.values(), *gathered(others.values())]
    return list({log.path: log for log in found}.values()), bare


def read(found: Found, options: Options, run_sets: RunSets = RunSet) -> RunSet:
    """Read a log to its end, as one no one writes to any more. Raises ``NoRunError`` or ``UnreadError``."""
    log = Log(found, State(None), Health(), options, run_sets)
    try:
        while log.more:
            log.read(time.time(), time.monotonic())
        log.read(time.time() + LAST_LINE_SECONDS, time.monotonic())
    except OSError as error:
        raise UnreadError(f"cannot be read: {error.strerror}") from error
    if log.run_set is None or not log.run_set.runs:
        unknown = _unknown_keys(found.path) if log.kind == "text" else ()
        raise NoRunError(UNKNOWN.format(", ".join(unknown)) if unknown else NOT_READ.get(log.kind, log.kind))
    return log.run_set


def _unknown_keys(path: Path) -> list[str]:
    """Return the keys of numbers in a file's first line, if that is JSON."""
    with path.open("rb") as file:
        line = file.readline(MOST_BYTES)
    logged = load_json(line) if line.startswith(b"{") else None
    return [*measured_values(flattened(logged))][:MOST_KEYS] if isinstance(logged, dict) else []


def last_step(log: Path, since: int) -> int | None:
    """Return the last step that a log has from an offset on; ``None`` if it has none there."""
    with tempfile.TemporaryDirectory(prefix="stepwatch-") as folder:
        part = Path(folder, "part.log")
        try:
            with log.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(since, size - MOST_BYTES))
                part.write_bytes(file.read(MOST_BYTES))
            runs = read(next(iter(find.files([str(part)]))), Options()).runs.values()
        except (OSError, StopIteration, UnreadError):
            return None
    steps = [run.progress.step for run in runs if run.progress.step >= 0]
    return max(steps, default=None)
