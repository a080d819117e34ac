"""Logs to samples, several at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from exporter.runs.logs.find import Found
from exporter.runs.logs.names import printable, run_names
from exporter.runs.model.run import Options
from stepwatch.backtest import openmetrics_writer
from stepwatch.backtest.openmetrics_writer import Replayed
from stepwatch.backtest.results import Unjudged
from stepwatch.backtest.server import Tick
from stepwatch.operate import logfiles

MISSING = "there is no such file or folder"
EMPTY = "there is no log in it. Fix: name logs or their folder: `make backtest RUNS=/path/to/logs`"

SAMPLES = ".samples"
"""How the names of the files of samples end."""

Replays = tuple[Replayed, ...] | Unjudged
"""The runs of one log, or why there are none."""


@dataclass(frozen=True)
class Recording:
    """Which metrics are written, into files of which folder; ``options`` say how logs are read."""

    metrics: frozenset[str]
    options: Options
    folder: Path


@dataclass(frozen=True)
class Places:
    """The logs that users named: ``logs`` by the name of their run, ``missing`` places that hold none.

    ``asked`` are the files that were named themselves: that there is no run in one is an error.
    """

    logs: tuple[tuple[str, Found], ...]
    missing: tuple[Unjudged, ...]
    asked: frozenset[Path]


def find(places: Sequence[str], watched: Path) -> Places:
    """The logs in these files, folders and globs."""
    found, bare = logfiles.logs(places, watched)
    names = run_names({log.path: log.relative for log in found})
    missing = tuple(_missing(Path(place)) for place in bare)
    asked = frozenset(path.absolute() for path in map(Path, places) if path.is_file())
    return Places(tuple((names[log.path], log) for log in found), missing, asked)


def _missing(place: Path) -> Unjudged:
    name = printable(place)
    return Unjudged(name, (name,), EMPTY if place.exists() else MISSING)


def replay(places: Places, recording: Recording, jobs: int, tick: Tick) -> Iterator[Replays]:
    """What each log held, in order; so many are read at once."""
    work = partial(_one, recording=recording, asked=places.asked)
    numbered = list(enumerate(places.logs))
    if jobs == 1 or len(numbered) < 2:
        yield from _ticking(map(work, numbered), tick)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from _ticking(pool.map(work, numbered), tick)


def _ticking(done: Iterable[Replays], tick: Tick) -> Iterator[Replays]:
    for each in done:
        tick()
        yield each


def _one(log: tuple[int, tuple[str, Found]], recording: Recording, asked: frozenset[Path]) -> Replays:
    number, (name, found) = log
    samples = recording.folder / f"{number}{SAMPLES}"
    try:
        return openmetrics_writer.write(found, name, recording.metrics, recording.options, samples)
    except logfiles.UnreadError as problem:
        samples.unlink()
        asked_for = not asked.isdisjoint(part.absolute() for part in found.parts)
        if isinstance(problem, logfiles.NoRunError) and not asked_for:
            return ()
        return Unjudged(name, tuple(map(printable, found.parts)), str(problem))
