"""Runs that several logs tell of: shown once.

verl writes a console log beside its JSON lines, Hugging Face's trainer event files beside both. Such
logs lie side by side or grow together, and hold the same numbers at the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path, PurePath

from exporter.runs.names import home
from exporter.runs.run import Run, Times

Place = tuple[Path, str]
"""A log or feed, and the name it gives a run."""

COMPARE_SECONDS = 5.0
TOGETHER_SECONDS = 60.0
"""Logs of one run get their last steps at the same time, but for buffers."""

SLACK_SECONDS = 5.0
"""Buffers delay what a log says, but not by much at a run's start."""

LAGGING = "trainer_state"
"""Written after the steps that it holds, and dated by that."""

BEST = ("tensorboard", "verl_jsonl", "scoped_jsonl", "mlflow", "prometheus_page", "flat_jsonl")
"""Exact numbers first, then what is live; text and what is written now and then come after these."""

LAST = "rl_insight"
"""A page comes by itself, and later than the log beside it, whose run must not change its name then."""

TELLING = ("finished", "failed", "running", "vanished", "stopped")
"""What one log knows of the end, the others may not."""


@dataclass(slots=True)
class Told:
    """A run as one log tells it: ``at`` that log, which is ``place`` below the watched folder.

    ``twins`` is the same run as its other logs tell it, ``gone`` when its writer ended, in seconds of the
    steady clock.
    """

    at: Place
    place: PurePath
    run: Run
    state: str
    writer: bool | None
    twins: tuple[Run, ...] = ()
    gone: float | None = None


class Twins:
    """Finds runs that are told of twice, now and then: each is compared with each.

    Pairs that differ are remembered, and not compared again.
    """

    def __init__(self) -> None:
        self._apart: set[tuple[int, int]] = set()
        self._first: dict[Place, Place] = {}
        self._due = 0.0

    def once(self, told: Sequence[Told], now: float) -> list[Told]:
        """Each run once, in its best log, in the state that all its logs together tell.

        ``now`` in seconds of the steady clock.
        """
        if now >= self._due or self._first.keys() != {one.at for one in told}:
            self._compare(told)
            self._due = now + COMPARE_SECONDS
        groups: dict[Place, list[Told]] = {}
        for one in told:
            groups.setdefault(self._first[one.at], []).append(one)
        return [_one(group) for group in groups.values()]

    def _compare(self, told: Sequence[Told]) -> None:
        """Find for each log the first one of the same run."""
        runs: list[Told] = []
        first: dict[Place, Place] = {}
        for one in told:
            same = next((other for other in runs if self._same(other, one)), one)
            first[one.at] = same.at
            if same is one:
                runs.append(one)
        if self._first.keys() - first.keys():
            there = {one.run.serial for one in told}
            self._apart = {pair for pair in self._apart if there.issuperset(pair)}
        self._first = first

    def _same(self, a: Told, b: Told) -> bool:
        pair = (a.run.serial, b.run.serial)
        if pair in self._apart or not _may_be_one(a, b):
            return False
        same = a.run.trace.is_same(b.run.trace)
        if same is False:
            self._apart.add(pair)
        return bool(same)


def _may_be_one(a: Told, b: Told) -> bool:
    """Are they different logs of one time that lie side by side (or below), or grow together?"""
    if a.at[0] == b.at[0] or not _of_one_time(a.run, b.run):
        return False
    return _side_by_side(a.place, b.place) or _together(a.run, b.run)


def _of_one_time(a: Run, b: Run) -> bool:
    """Did neither begin only after the other's end? A retry with the same seed repeats all numbers."""
    if LAGGING in (a.source, b.source):
        return True
    return _began_before_the_end(a.times, b.times) and _began_before_the_end(b.times, a.times)


def _began_before_the_end(one: Times, other: Times) -> bool:
    if one.start is None or other.last is None or one.start == one.last:  # the log does not say when
        return True
    return one.start <= other.last + SLACK_SECONDS


def _side_by_side(a: PurePath, b: PurePath) -> bool:
    one, other = home(a), home(b)
    if PurePath() in (one, other):
        return False
    return one.is_relative_to(other) or other.is_relative_to(one)


def _together(a: Run, b: Run) -> bool:
    if a.times.last is None or b.times.last is None:
        return False
    return abs(a.times.last - b.times.last) < TOGETHER_SECONDS


def _one(group: list[Told]) -> Told:
    if len(group) == 1:
        return group[0]
    best = min(group, key=_rank)
    gone = max((one.gone for one in group if one.gone is not None), default=-inf)
    told = {one.state for one in group if not _is_outlived(one, gone)} or {best.state}
    state = next(state for state in TELLING if state in told)
    writer = True if any(one.writer for one in group) else best.writer
    twins = tuple(one.run for one in group if one is not best)
    return replace(best, state=state, writer=writer, twins=twins)


def _is_outlived(told: Told, gone: float) -> bool:
    """Does a log only seem to go on? Nobody is seen to write it, and it has no step since another's end."""
    return told.state == "running" and not told.writer and (told.run.moved or -inf) <= gone


def _rank(told: Told) -> tuple[int, str]:
    source = told.run.source
    known = BEST.index(source) if source in BEST else len(BEST)
    return known + (source == LAST), str(told.place)
