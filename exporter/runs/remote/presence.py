"""Which runs their pages report, and since when no page does: by that it is known that a trainer is gone."""

from __future__ import annotations

import time
from collections.abc import Iterable

from exporter.runs.model.run import Run
from exporter.runs.visible.views import Signs

AWAY_SECONDS = 30.0
"""A run must be missed that long for its trainer to have ended: networks fail for a while."""


class Presence:
    """Runs by their names on the pages; all times in seconds of the steady clock."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._reported: dict[str, float] = {}

    def reported(self, names: Iterable[str], now: float) -> None:
        """A page reports these runs."""
        self._reported.update(dict.fromkeys(names, now))

    def forget(self, name: str) -> None:
        """No one asks for this run any more."""
        self._reported.pop(name, None)

    def missed(self, name: str, now: float) -> float:
        """Seconds since a page reported a run; since our start, if none has."""
        return now - self._reported.get(name, self._begun)

    def signs(self, name: str, run: Run, now: float, *, telling: bool, pending: bool) -> Signs:
        """Signs of life of a run.

        Args:
            name: Of the run.
            run: What is known of it.
            now: The time.
            telling: Its page does, as far as is known.
            pending: No page was heard yet that may report it.
        """
        quiet = self.quiet(run, now)
        silent = now - self._reported[name] if name in self._reported else quiet
        there = telling or silent < AWAY_SECONDS or (pending and name not in self._reported)
        return Signs(quiet, None if there else silent, there)

    def quiet(self, run: Run, now: float) -> float:
        """Seconds since the run's last step, by the exporter's clock or the time that was logged."""
        if run.moved is not None:
            return now - run.moved
        last = run.times.last
        return now - self._begun if last is None else max(0.0, time.time() - last)
