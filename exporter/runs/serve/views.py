"""Runs as they are shown: which, under which name, each once.

Several logs may report one run: verl writes a console log beside its JSON lines, Hugging Face's trainer
event files beside both. Such logs lie side by side or grow together, and hold the same numbers at the same
steps. But so do two runs with one seed: two logs of one format are two runs, unless one is seen to be a copy
of the other.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import inf
from pathlib import Path, PurePath
from typing import NamedTuple

from exporter.runs.files.launch import Launch
from exporter.runs.logs.names import home, printable, run_name, run_names
from exporter.runs.logs.processes import RunGPUs
from exporter.runs.logs.states import explains
from exporter.runs.model.run import Run, Times
from exporter.runs.model.run_source import Place, Sighting

logger = logging.getLogger(__name__)
COMPARE_SECONDS = 5.0
TOGETHER_SECONDS = 60.0  # Logs of one run get their last steps at the same time, but for buffers
SLACK_SECONDS = 5.0  # Buffers delay what a log says, but not by much at a run's start
LAGGING = "trainer_state"  # Written after the steps that it holds, and dated by that
BEHIND = "wandb"  # Written 32 KiB at a time: its last step does not show when another log's was
BEST = ("tensorboard", "verl_jsonl", "scoped_jsonl", "mlflow", "prometheus_page", "flat_jsonl")
"""Exact numbers first, then what is live; text and what is written now and then come after these."""
LAST = frozenset({"rl_insight", "wandb"})
"""A page comes by itself, and later than the log beside it, whose run must not change its name then.
W&B's file is minutes behind it."""

ENDS = ("finished", "failed", "running", "vanished", "stopped")
"""What one log knows of the end, the others may not: the first that any of them says counts."""


class DistinctPairs:
    """Pairs of runs that differ, in one bit each: 400 runs are 80,000 pairs."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._others: dict[int, int] = {}

    def bit(self, run: int) -> int:
        """The run's bit; ``run`` is its serial number."""
        if run not in self._bits:
            used = sum(self._bits.values())
            self._bits[run] = ~used & (used + 1)  # the lowest that is free
        return self._bits[run]

    def others(self, run: int) -> int:
        """The bits of the runs that differ from this one."""
        return self._others.get(run, 0)

    def add(self, a: int, b: int) -> None:
        """Remember that two runs differ."""
        self._others[a] = self.others(a) | self.bit(b)
        self._others[b] = self.others(b) | self.bit(a)

    def keep(self, runs: AbstractSet[int]) -> None:
        """Forget all runs but these."""
        self._bits = {run: bit for run, bit in self._bits.items() if run in runs}
        there = sum(self._bits.values())
        self._others = {run: others & there for run, others in self._others.items() if run in runs}


class Duplicates:
    """Finds runs that are reported twice; ``first`` maps each to its best place."""

    def __init__(self) -> None:
        self.first: Mapping[Place, Place] = {}
        self._distinct = DistinctPairs()
        self._due = 0.0

    def update(self, sightings: Sequence[Sighting], now: float) -> None:
        """Compare the runs with steps, if it is time or others are there; ``now`` in seconds, steady."""
        seen = [one for one in sightings if one.text is None]
        if now < self._due and self.first.keys() == {one.at for one in seen}:
            return
        self._due = now + COMPARE_SECONDS
        runs: list[list[Sighting]] = []
        bits: list[int] = []  # of all logs of each run
        for one in sorted(seen, key=_rank):
            distinct = self._distinct.others(one.run.serial)
            same = [
                number
                for number, run in enumerate(runs)
                if not bits[number] & distinct and all(self._same(other, one) for other in run)
            ]
            if same:
                number = max(same, key=lambda number: _likeness(runs[number][0], one))
                runs[number].append(one)
                bits[number] |= self._distinct.bit(one.run.serial)
            else:
                runs.append([one])
                bits.append(self._distinct.bit(one.run.serial))
        first = {one.at: run[0].at for run in runs for one in run}
        if self.first.keys() - first.keys():
            self._distinct.keep({one.run.serial for one in seen})
        self.first = first

    def _same(self, a: Sighting, b: Sighting) -> bool:
        """Whether two logs of one time that lie side by side (or below), or grow together, are one run's."""
        sources = a.run.source, b.run.source
        # neither began only after the other's end: a retry with the same seed repeats all numbers
        if a.at[0] == b.at[0] or (
            LAGGING not in sources
            and not (
                _began_before_the_end(a.run.times, b.run.times)
                and _began_before_the_end(b.run.times, a.run.times)
            )
        ):
            return False
        last, other = a.run.times.last, b.run.times.last
        together = (
            last is not None
            and other is not None
            and (BEHIND in sources or abs(last - other) < TOGETHER_SECONDS)
        )
        if not together and not _side_by_side(a.place, b.place):
            return False
        same = a.run.trace.is_same(b.run.trace)
        # a trainer writes each format once; W&B keeps a second console log
        of_wandb = [one.place.parts[-2:] == ("files", "output.log") for one in (a, b)]
        of_one_format = sources[0] == sources[1] and of_wandb[0] == of_wandb[1]
        copy = _is_copy(a, b) if same is not False and of_one_format else True
        if False in (same, copy):
            self._distinct.add(a.run.serial, b.run.serial)
        return bool(same and copy)


def merged(sightings: Sequence[Sighting], first: Mapping[Place, Place]) -> list[Sighting]:
    """Each run once, in its best log, in the state that follows from all its logs together."""
    groups: dict[Place, list[Sighting]] = {}
    for one in sightings:
        groups.setdefault(first[one.at], []).append(one)
    found: list[Sighting] = []
    for group in groups.values():
        best = min(group, key=_rank)
        if len(group) > 1:
            best = replace(
                best,
                state=_state(group),
                writer=any(one.writer for one in group) or best.writer,
                duplicates=tuple(one.run for one in group if one is not best),
                writers=frozenset().union(*(one.writers for one in group)),
                launch=next((one.launch for one in group if one.launch), None),
            )
        found.append(best)
    return found


def _state(group: list[Sighting]) -> str:
    """What all logs together say about the end.

    A wrapper knows. Where one log's writer is gone, another's, which cannot be seen, goes on only if it has
    logged since; and the steps that were planned, if another log names them and no step exceeds them, decide
    whether it was done.
    """
    if launched := [one.state for one in group if one.launch and one.launch.state]:
        return launched[0]
    gone = max((one.gone for one in group if one.gone is not None), default=-inf)
    # without those that only seem to go on: no process is seen to write them, no step since another's end
    states = {
        one.state for one in group if one.state != "running" or one.writer or (one.run.moved or -inf) > gone
    } or {one.state for one in group}
    state = next(state for state in ENDS if state in states)
    total, step = (max(one.run.total or 0 for one in group), max(one.run.progress.step for one in group))
    if state != "stopped" or gone == -inf or total < max(1, step):
        return state
    return "finished" if step == total else "vanished"


def _began_before_the_end(one: Times, other: Times) -> bool:
    if one.start is None or other.last is None or one.start == one.last:  # the log does not say when
        return True
    return one.start <= other.last + SLACK_SECONDS


def _side_by_side(a: PurePath, b: PurePath) -> bool:
    one, other = home(a), home(b)
    if PurePath() in (one, other):
        return False
    return one.is_relative_to(other) or other.is_relative_to(one)


def _is_copy(a: Sighting, b: Sighting) -> bool | None:
    """Whether one log is the other's copy: one process, equal times, or compressed; ``None``: unknown."""
    if f"{a.place}.gz" == str(b.place) or f"{b.place}.gz" == str(a.place):
        return True
    if a.process and b.process:
        return a.process == b.process
    return a.run.trace.took_as_long(b.run.trace)


def _likeness(a: Sighting, b: Sighting) -> tuple[bool, ...]:
    """By what the logs of one run are found among those of runs with the same numbers."""
    return (
        bool(a.run.trace.took_as_long(b.run.trace)),
        a.process is not None and a.process == b.process,
        home(a.place) == home(b.place),
        a.place.stem == b.place.stem,
    )


def _rank(sighting: Sighting) -> tuple[int, str]:
    source = sighting.run.source
    known = BEST.index(source) if source in BEST else len(BEST)
    return known + (source in LAST), str(sighting.place)


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
