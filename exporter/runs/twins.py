"""Runs that several logs tell of: shown once.

verl writes a console log beside its JSON lines, Hugging Face's trainer event files beside both. Such
logs lie side by side or grow together, and hold the same numbers at the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from exporter.runs.names import home
from exporter.runs.run import Run
from exporter.runs.views import View

TOGETHER_SECONDS = 60.0
"""Logs of one run get their last steps at the same time, but for buffers."""

BEST = ("tensorboard", "verl_jsonl", "scoped_jsonl", "mlflow", "prometheus_page", "flat_jsonl")
"""Exact numbers first, then what is live; text and what is written now and then come last."""

TELLING = ("finished", "failed", "running", "vanished", "stopped")
"""What one log knows of the end, the others may not."""


@dataclass(frozen=True, slots=True)
class Told:
    """A run as one log tells it: ``at`` that log, which is ``place`` below the watched folder."""

    at: tuple[Path, str]
    place: PurePath
    view: View


class Twins:
    """Finds runs that are told of twice. Pairs that differ are remembered, and not compared again."""

    def __init__(self) -> None:
        self._apart: set[tuple[int, int]] = set()

    def once(self, told: Iterable[Told]) -> list[Told]:
        """Each run once, in its best log, in the state that all its logs together tell."""
        groups: list[list[Told]] = []
        for one in told:
            group = next((group for group in groups if self._same(group[0], one)), None)
            if group is None:
                groups.append([one])
            else:
                group.append(one)
        alive = {id(one.view.run) for group in groups for one in group}
        self._apart = {pair for pair in self._apart if alive.issuperset(pair)}
        return [_one(group) for group in groups]

    def _same(self, a: Told, b: Told) -> bool:
        pair = (id(a.view.run), id(b.view.run))
        if pair in self._apart or not _may_be_one(a, b):
            return False
        same = a.view.run.trace.is_same(b.view.run.trace)
        if same is False:
            self._apart.add(pair)
        return bool(same)


def _may_be_one(a: Told, b: Told) -> bool:
    """Are they different logs that lie side by side, or are written at the same time?"""
    if a.at[0] == b.at[0]:
        return False
    return _side_by_side(a.place, b.place) or _together(a.view.run, b.view.run)


def _side_by_side(a: PurePath, b: PurePath) -> bool:
    homes = home(a), home(b)
    return homes[0] == homes[1] != PurePath()


def _together(a: Run, b: Run) -> bool:
    if a.times.last is None or b.times.last is None:
        return False
    return abs(a.times.last - b.times.last) < TOGETHER_SECONDS


def _one(group: list[Told]) -> Told:
    if len(group) == 1:
        return group[0]
    best = min(group, key=_rank)
    state = next(state for state in TELLING if state in {one.view.state for one in group})
    writers = {one.view.writer for one in group}
    writer = True if True in writers else best.view.writer
    return replace(best, view=replace(best.view, state=state, writer=writer))


def _rank(told: Told) -> tuple[int, str]:
    source = told.view.run.source
    return BEST.index(source) if source in BEST else len(BEST), told.view.name
