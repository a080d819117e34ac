"""Which runs their pages tell of, and since when no page does: by that it is known that a trainer is gone."""

from __future__ import annotations

import time
from collections.abc import Iterable

from exporter.runs.run import Run
from exporter.runs.views import Signs

AWAY_SECONDS = 30.0
"""A run must be missed that long for its trainer to have ended: networks fail for a while."""


class Presence:
    """Runs by their names on the pages; all times in seconds of the steady clock."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._told: dict[str, float] = {}

    def told(self, names: Iterable[str], now: float) -> None:
        """A page tells of these runs."""
        self._told.update(dict.fromkeys(names, now))

    def forget(self, name: str) -> None:
        """Nobody asks for this run any more."""
        self._told.pop(name, None)

    def missed(self, name: str, now: float) -> float:
        """Seconds since a page told of a run; since our start, if none has."""
        return now - self._told.get(name, self._begun)

    def signs(self, name: str, run: Run, now: float, *, telling: bool, pending: bool) -> Signs:
        """Signs of life of a run.

        Args:
            name: Of the run.
            run: What is known of it.
            now: The time.
            telling: Its page does, as far as is known.
            pending: No page was heard yet that may tell of it.
        """
        quiet = self.quiet(run, now)
        silent = now - self._told[name] if name in self._told else quiet
        there = telling or silent < AWAY_SECONDS or (pending and name not in self._told)
        return Signs(quiet, None if there else silent, there)

    def quiet(self, run: Run, now: float) -> float:
        """Seconds since the run's last step, whether it came before our eyes or somebody told when."""
        if run.moved is not None:
            return now - run.moved
        told = run.times.last
        return now - self._begun if told is None else max(0.0, time.time() - told)
