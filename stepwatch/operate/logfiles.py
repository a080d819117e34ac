"""The logs that users name on a command line, as the stack finds them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from exporter.runs.exporter_health import Health
from exporter.runs.files.state_file import StateFolder
from exporter.runs.logs import find
from exporter.runs.logs.find import Found
from exporter.runs.logs.grouping import gathered
from exporter.runs.logs.log import Log
from exporter.runs.model.run import Options
from exporter.runs.model.run_set import RunSet, RunSets
from exporter.runs.readers.follow import LAST_LINE_SECONDS

NOT_READ = {
    "empty": "empty",
    "binary": "no text",
    "document": "JSON without a history of steps",
    "text": "no record of a trainer",
    "no_records": "no record of a trainer",
    "compressed": "no record of a trainer",
    "events": "no event",
    "wandb": "W&B's file without a step yet: it is written 32 KiB at a time",
    "swanlab": "no scalar",
    "database": "no record of a trainer",
    "log": "a table without a row so far",
}
"""What a file is that no run was found in."""


class UnreadError(Exception):
    """Raised for a log that cannot be read; says why."""


class NoRunError(UnreadError):
    """Raised for a file in which there is no run; says what it is instead."""


def logs(places: Sequence[str], watched: Path) -> tuple[list[Found], list[str]]:
    """The logs in folders, files and globs, and the places that hold none.

    Those below the watched folder are known by their path there. In a folder, files that make up one log
    are one, as for the stack. A file that is named is meant alone.
    """
    files = {place: list(_placed(find.files([place]), watched)) for place in places}
    alone = [place for place in places if Path(place).is_file()]
    others = [place for place in places if place not in alone]
    found = [*_once(files, alone), *gathered(_once(files, others))]
    return list({log.path: log for log in found}.values()), [place for place in places if not files[place]]


def _once(files: Mapping[str, Sequence[Found]], places: Iterable[str]) -> Iterable[Found]:
    """The files of some places, one that two of them lead to once."""
    found: dict[Path, Found] = {}
    for file in (file for place in places for file in files[place]):
        found.setdefault(file.path.resolve(), file)
    return found.values()


def _placed(files: Iterable[Found], watched: Path) -> Iterator[Found]:
    folder = watched.absolute()
    for file in files:
        path = file.path.absolute()
        inside = path.is_relative_to(folder)
        yield replace(file, path=path, root=folder, parts=(path,)) if inside else file


def read(found: Found, options: Options, rosters: RunSets = RunSet) -> RunSet:
    """Read a log to its end, as one that no one writes to any more.

    Raises:
        NoRunError: it holds no run.
        UnreadError: it cannot be read.
    """
    log = Log(found, StateFolder(None), Health(), options, rosters)
    try:
        while log.more:
            log.read(time.time(), time.monotonic())
        log.read(time.time() + LAST_LINE_SECONDS, time.monotonic())
    except OSError as error:
        raise UnreadError(f"cannot be read: {error.strerror}") from error
    if log.run_set is None or not log.run_set.runs:
        raise NoRunError(NOT_READ.get(log.kind, log.kind))
    return log.run_set
