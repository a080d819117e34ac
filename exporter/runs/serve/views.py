"""Runs as they are shown: which, under which name, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from exporter.runs.files.launch import Launch
from exporter.runs.logs.names import printable, run_name, run_names
from exporter.runs.logs.processes import RunGPUs
from exporter.runs.model.ends import Place, Sighting
from exporter.runs.model.run import Run
from exporter.runs.model.same import explains, merged

MOST_KEYS = 8  # Keys of a run that no rule can judge, in the message about it


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
    """The runs to show, of unique names; ``collisions`` are logs that lead to another's name."""

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
    """Select what is shown of what the sources saw; the same for the same arguments."""
    seen = [one for one in sightings if one.text is None]
    once = merged(seen, first)
    duplicates = frozenset(one.at[0] for one in seen) - {one.at[0] for one in once}
    named = {path: relative for path, relative in logs.items() if path not in duplicates}
    short = Counter(map(run_name, named.values()))
    names = run_names(named)
    texts = [
        one for one in sightings if one.text is not None and not any(explains(other, one) for other in seen)
    ]
    taken, of_texts = set(names.values()), run_names({text.at[0]: text.place for text in texts})
    for text in texts:  # named as any log, but a run with steps keeps its own
        name = of_texts[text.at[0]]
        names.setdefault(text.at[0], printable(text.place) if name in taken else name)
    return Selection(
        _views([*once, *texts], names, gpus),
        duplicates,
        len(seen) - len(once),
        sum(count for count in short.values() if count > 1),
    )


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
