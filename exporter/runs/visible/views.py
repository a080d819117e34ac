"""Runs as they are shown: which, under which name, each once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from exporter.runs.files.launch import Launch
from exporter.runs.logs.names import printable, run_name, run_names
from exporter.runs.logs.processes import RunGPUs
from exporter.runs.logs.states import explains
from exporter.runs.model.run import Run
from exporter.runs.model.run_source import Place, Sighting
from exporter.runs.signals.candidates import ENOUGH_RECORDS
from exporter.runs.stats.catalogue import JUDGED
from exporter.runs.visible.duplicates import merged

logger = logging.getLogger(__name__)

MOST_KEYS = 8
"""Keys of a run that no rule can judge, in the message about it."""


class View(NamedTuple):
    """A run as it is shown: its name, state, and whether a writer was seen (``None``: unknown).

    ``duplicates`` is the same run in its other logs: one of them may be shown next. ``unread``: since
    when its log cannot be read, as the mount hangs, in seconds since the epoch. ``writers`` are the ids of
    the living processes that write its logs, ``gpus`` what is known of its GPUs, ``launch`` what its wrapper
    knows of it.
    """

    name: str
    run: Run
    state: str
    writer: bool | None
    duplicates: tuple[Run, ...] = ()
    unread: float | None = None
    writers: frozenset[str] = frozenset()
    gpus: RunGPUs = RunGPUs()
    launch: Launch | None = None


class Selection(NamedTuple):
    """The runs to show; no two have one name.

    ``duplicate_logs`` are those whose runs are all shown by other logs, ``duplicate_runs`` counts these runs,
    ``collisions`` logs that lead to a name another one has.
    """

    views: Mapping[Place, View] = {}
    duplicate_logs: frozenset[Path] = frozenset()
    duplicate_runs: int = 0
    collisions: int = 0


def select(
    sightings: Sequence[Sighting],
    logs: Mapping[Path, PurePath],
    first: Mapping[Place, Place],
    gpus: Mapping[Place, RunGPUs],
) -> Selection:
    """Select what is shown of what the sources saw; the same for the same arguments, which stay as they are.

    Args:
        sightings: The runs of all sources.
        logs: The logs that are named by their paths, each with its path below the watched folder.
        first: Each place of a run with the best place of the same run, as ``Duplicates`` knows them.
        gpus: What is known of the GPUs of runs.
    """
    seen = [one for one in sightings if one.text is None]
    once = merged(seen, first)
    duplicates = frozenset(one.at[0] for one in seen) - {one.at[0] for one in once}
    named = {path: relative for path, relative in logs.items() if path not in duplicates}
    short = Counter(map(run_name, named.values()))
    names = run_names(named)
    texts = [
        one for one in sightings if one.text is not None and not any(explains(other, one) for other in seen)
    ]
    return Selection(
        _views([*once, *texts], {**_names_of_texts(texts, names.values()), **names}, gpus),
        duplicates,
        len(seen) - len(once),
        sum(count for count in short.values() if count > 1),
    )


def _names_of_texts(texts: Sequence[Sighting], taken: Collection[str]) -> dict[Path, str]:
    """Names as of any log, but a run with steps keeps its own."""
    names = run_names({text.at[0]: text.place for text in texts})
    return {
        text.at[0]: printable(text.place) if names[text.at[0]] in taken else names[text.at[0]]
        for text in texts
    }


def _views(
    once: Sequence[Sighting], logs: Mapping[Path, str], gpus: Mapping[Place, RunGPUs]
) -> dict[Place, View]:
    """Each run is named by its log, and by the name that it has in it."""
    names = ["/".join(filter(None, (logs.get(one.at[0]), one.at[1]))) for one in once]
    taken = Counter(names)
    if len(taken) < len(names):  # series of two runs must never be the same
        # A log keeps its name when a page comes that has it too, and may report the same run.
        of_logs = Counter(name for name, one in zip(names, once, strict=True) if one.at[0] in logs)
        names = [
            name
            if (of_logs if one.at[0] in logs else taken)[name] == 1
            else f"{name} ({' '.join(map(str, filter(None, one.at)))})"
            for name, one in zip(names, once, strict=True)
        ]
    return {
        one.at: View(
            name,
            one.run,
            one.state,
            one.writer,
            one.duplicates,
            one.unread,
            one.writers,
            gpus.get(one.at, RunGPUs()),
            one.launch,
        )
        for name, one in zip(names, once, strict=True)
    }


class Unmapped:
    """Reports runs that no rule can judge, because none of their keys is known, each once."""

    def __init__(self) -> None:
        self._logged: frozenset[int] = frozenset()

    def log(self, views: Iterable[View]) -> int:
        """Report such runs; returns how many there are."""
        unjudged = [
            view
            for view in views
            if view.run.records >= ENOUGH_RECORDS and JUDGED.isdisjoint(view.run.latest)
        ]
        for view in unjudged:
            if view.run.serial not in self._logged:
                logger.warning("%s", _unmapped(view))
        self._logged = frozenset(view.run.serial for view in unjudged)
        return len(unjudged)


def _unmapped(view: View) -> str:
    """The run, some of its keys, and the lines to add."""
    keys = sorted(view.run.raw.values(view.run.reading))
    more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
    listed = f": {', '.join(keys[:MOST_KEYS])}{more}" if keys else ""
    likely = [candidate.setting for candidate in view.run.candidates()] or ["reward: [key]"]
    return (
        f"{view.name}: none of its keys is a signal that rules use{listed}. "
        f"Fix: map its keys to signals below signals in config.yaml, such as {'; '.join(likely)}"
    )
