"""Runs that several logs report: shown once.

verl writes a console log beside its JSON lines, Hugging Face's trainer event files beside both. Such
logs lie side by side or grow together, and hold the same numbers at the same steps. But so do two runs
with one seed: two logs of one format are two runs, unless one is seen to be a copy of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path, PurePath

from exporter.runs.logs.names import home
from exporter.runs.model.run import Run, Times

Place = tuple[Path, str]
"""A log or feed, and the name it gives a run."""

COMPARE_SECONDS = 5.0
TOGETHER_SECONDS = 60.0
"""Logs of one run get their last steps at the same time, but for buffers."""

SLACK_SECONDS = 5.0
"""Buffers delay what a log says, but not by much at a run's start."""

LAGGING = "trainer_state"
"""Written after the steps that it holds, and dated by that."""

BEHIND = "wandb"
"""Written 32 KiB at a time: its last step says nothing of when another log's was."""

BEST = ("tensorboard", "verl_jsonl", "scoped_jsonl", "mlflow", "prometheus_page", "flat_jsonl")
"""Exact numbers first, then what is live; text and what is written now and then come after these."""

LAST = frozenset({"rl_insight", "wandb"})
"""A page comes by itself, and later than the log beside it, whose run must not change its name then.
W&B's file is minutes behind it."""

TELLING = ("finished", "failed", "running", "vanished", "stopped")
"""What one log knows of the end, the others may not."""


@dataclass(slots=True)
class Sighting:
    """A run as one log shows it: ``at`` that log, which is ``place`` below the watched folder.

    ``process`` is the id of the process that holds the log open, if one is seen; ``gone`` when its writer
    ended, in seconds of the steady clock. ``twins`` is the same run as its other logs tell it. ``unread``:
    since when the log cannot be read, in seconds since the epoch. ``writers`` are the ids of the living
    processes that write its logs.
    """

    at: Place
    place: PurePath
    run: Run
    state: str
    writer: bool | None
    process: str | None = None
    twins: tuple[Run, ...] = ()
    gone: float | None = None
    unread: float | None = None
    writers: frozenset[str] = frozenset()


class Apart:
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
    """Finds runs that are reported twice, now and then: each is compared with each.

    Pairs that differ are remembered, and not compared again.
    """

    def __init__(self) -> None:
        self._apart = Apart()
        self._first: dict[Place, Place] = {}
        self._due = 0.0

    def once(self, sightings: Sequence[Sighting], now: float) -> list[Sighting]:
        """Each run once, in its best log, in the state that all its logs together tell.

        ``now`` in seconds of the steady clock.
        """
        if now >= self._due or self._first.keys() != {one.at for one in sightings}:
            self._compare(sightings)
            self._due = now + COMPARE_SECONDS
        groups: dict[Place, list[Sighting]] = {}
        for one in sightings:
            groups.setdefault(self._first[one.at], []).append(one)
        return [_one(group) for group in groups.values()]

    def _compare(self, sightings: Sequence[Sighting]) -> None:
        """Find for each log the best one of the same run: its run is that of all logs found so far."""
        runs: list[list[Sighting]] = []
        bits: list[int] = []  # of all logs of each run
        for one in sorted(sightings, key=_rank):
            apart = self._apart.others(one.run.serial)
            same = [
                number
                for number, run in enumerate(runs)
                if not bits[number] & apart and all(self._same(other, one) for other in run)
            ]
            if same:
                number = max(same, key=lambda number: _likeness(runs[number][0], one))
                runs[number].append(one)
                bits[number] |= self._apart.bit(one.run.serial)
            else:
                runs.append([one])
                bits.append(self._apart.bit(one.run.serial))
        first = {one.at: run[0].at for run in runs for one in run}
        if self._first.keys() - first.keys():
            self._apart.keep({one.run.serial for one in sightings})
        self._first = first

    def _same(self, a: Sighting, b: Sighting) -> bool:
        if not _may_be_one(a, b):
            return False
        same = a.run.trace.is_same(b.run.trace)
        copy = _is_copy(a, b) if same is not False and _of_one_format(a, b) else True
        if False in (same, copy):
            self._apart.add(a.run.serial, b.run.serial)
        return bool(same and copy)


def _may_be_one(a: Sighting, b: Sighting) -> bool:
    """Are they different logs of one time that lie side by side (or below), or grow together?"""
    if a.at[0] == b.at[0] or not _of_one_time(a.run, b.run):
        return False
    return _together(a.run, b.run) or _side_by_side(a.place, b.place)


def _of_one_time(a: Run, b: Run) -> bool:
    """Did neither begin only after the other's end? A retry with the same seed repeats all numbers."""
    if LAGGING in (a.source, b.source):
        return True
    return _began_before_the_end(a.times, b.times) and _began_before_the_end(b.times, a.times)


def _began_before_the_end(one: Times, other: Times) -> bool:
    if one.start is None or other.last is None or one.start == one.last:  # the log does not say when
        return True
    return one.start <= other.last + SLACK_SECONDS


def _of_one_format(a: Sighting, b: Sighting) -> bool:
    """A trainer writes each format once; W&B keeps a second console log."""
    return a.run.source == b.run.source and _is_of_wandb(a.place) == _is_of_wandb(b.place)


def _is_of_wandb(place: PurePath) -> bool:
    return place.parts[-2:] == ("files", "output.log")


def _is_copy(a: Sighting, b: Sighting) -> bool | None:
    """Is one log the other's copy? ``None``: nothing tells now, and so it counts as another run's.

    One process writes both, or none is seen and even the times of the steps agree, or one is the other
    compressed.
    """
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


def _side_by_side(a: PurePath, b: PurePath) -> bool:
    one, other = home(a), home(b)
    if PurePath() in (one, other):
        return False
    return one.is_relative_to(other) or other.is_relative_to(one)


def _together(a: Run, b: Run) -> bool:
    if a.times.last is None or b.times.last is None:
        return False
    if BEHIND in (a.source, b.source):
        return True
    return abs(a.times.last - b.times.last) < TOGETHER_SECONDS


def _one(group: list[Sighting]) -> Sighting:
    if len(group) == 1:
        return group[0]
    best = min(group, key=_rank)
    writer = True if any(one.writer for one in group) else best.writer
    twins = tuple(one.run for one in group if one is not best)
    writers = frozenset().union(*(one.writers for one in group))
    return replace(best, state=_state(group), writer=writer, twins=twins, writers=writers)


def _state(group: list[Sighting]) -> str:
    """What all logs together say about the end.

    Where one log's writer is gone, another's, which cannot be seen, goes on only if it has logged since;
    and what another says of the steps that were planned tells whether it was done.
    """
    gone = max((one.gone for one in group if one.gone is not None), default=-inf)
    states = {one.state for one in group if not _is_outlived(one, gone)} or {one.state for one in group}
    state = next(state for state in TELLING if state in states)
    total = max(one.run.total or 0 for one in group)
    if state != "stopped" or gone == -inf or not total:
        return state
    return "finished" if max(one.run.progress.step for one in group) >= total else "vanished"


def _is_outlived(sighting: Sighting, gone: float) -> bool:
    """Does a log only seem to go on? No one is seen to write it, and it has no step since another's end."""
    return sighting.state == "running" and not sighting.writer and (sighting.run.moved or -inf) <= gone


def _rank(sighting: Sighting) -> tuple[int, str]:
    source = sighting.run.source
    known = BEST.index(source) if source in BEST else len(BEST)
    return known + (source in LAST), str(sighting.place)
