"""A page or server that is polled, and the runs it tells of."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Lock

from exporter.runs.health import Health, Polled
from exporter.runs.notice import Say
from exporter.runs.polled import Target
from exporter.runs.polled.poller import Poller
from exporter.runs.record import Event
from exporter.runs.roster import Roster
from exporter.runs.run import Clock, Options, Run
from exporter.runs.statefile import Saved, StateFolder
from exporter.runs.views import Signs

AWAY_SECONDS = 30.0
"""A trainer's page must be away that long for its run to have ended: networks fail for a while."""


class Feed:
    """Polls from ``start`` on. What the first answer holds is history, as the content of a log is.

    ``interval``: seconds between two polls. Events arrive in a thread of their own, under ``lock``.
    """

    def __init__(
        self, target: Target, interval: float, options: Options, states: StateFolder, lock: Lock
    ) -> None:
        self.target = target
        self.place = Path("/polled") / target.source / target.name
        self.poller = Poller(target, interval, self._take)
        self._states = states
        self._lock = lock
        self._live = False
        self._told: str | None = None
        self._begun = time.monotonic()
        self._saved: tuple[object, ...] = ()
        saved = states.load(self.place)
        before = saved.latest if saved and not target.has_history else None
        watched, marks = (saved.watched, saved.marks) if saved else ((), None)
        self.roster = Roster(target.source, "", options, before, watched, marks=marks)
        self.roster.goes_on = True
        self.roster.recall()

    def start(self) -> None:
        """Begin to poll."""
        self.poller.start()

    def stop(self) -> None:
        """Take nothing any more."""
        self.poller.stop()

    def _take(self, events: list[Event]) -> None:
        with self._lock:
            clock = Clock(time.time(), time.monotonic(), live=self._live)
            for event in events:
                self.roster.take(event, clock)
            for run in self.roster.runs.values():
                run.times.caught_up(clock.wall)
            self._live = True

    def signs(self, run: Run, now: float) -> Signs:
        """Signs of life: a page goes with the trainer that serves it, a server outlives its runs."""
        quiet = self._quiet(run, now)
        if not self.target.is_trainer:
            return Signs(quiet, None, None)
        silent = quiet if self.poller.answered is None else now - self.poller.answered
        there = self.poller.problem is None or silent < AWAY_SECONDS
        return Signs(quiet, None if there else silent, there)

    def _quiet(self, run: Run, now: float) -> float:
        """Seconds since the run's last step, whether it came before our eyes or the server told when."""
        if run.moved is not None:
            return now - run.moved
        told = run.times.last
        return now - self._begun if told is None else max(0.0, time.time() - told)

    def polled(self) -> Polled:
        """How the polls went so far."""
        target, poller = self.target, self.poller
        return Polled(target.name, target.source, poller.problem is None, poller.errors, poller.answered_at)

    def tell(self, say: Say) -> None:
        """Tell why the target gives no answer, once for each reason."""
        problem = self.poller.problem
        if problem is not None and problem != self._told:
            say(problem)
        self._told = problem

    def save(self, health: Health) -> None:
        """Keep what the next start could not ask for, if it changed since the last time."""
        with self._lock:
            version = (self.roster.version(), *self.roster.watched())
            if version == self._saved:
                return
            roster = self.roster
            saved = Saved(None, roster.kept(), "", 0, roster.watched(), marks=roster.marks())
        try:
            self._states.save(self.place, saved)
        except OSError:
            health.state_errors += 1
            return
        self._saved = version
