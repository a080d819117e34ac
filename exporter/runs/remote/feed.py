"""A page or server that is polled, and the runs it reports."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Lock

from exporter.runs.files.state_file import StateFolder
from exporter.runs.logs.run_limit import RunLimit
from exporter.runs.model.health import Health, Polled
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.remote import Target
from exporter.runs.remote.poller import Poller
from exporter.runs.remote.presence import Presence
from exporter.runs.remote.remembered import Remembered
from exporter.runs.signals.record import Event
from exporter.runs.visible.views import Signs


class Feed:
    """Polls from ``start`` on. What the first answer holds is history, as the content of a log is.

    ``interval``: seconds between two polls. Events arrive in a thread of their own, under ``lock``.
    """

    def __init__(
        self,
        target: Target,
        interval: float,
        options: Options,
        states: StateFolder,
        lock: Lock,
        *,
        limit: RunLimit,
    ) -> None:
        self.target = target
        self.name = target.name
        self.place = Path("/polled") / target.source / target.name
        self.poller = Poller(target, interval, self._take)
        self._lock = lock
        self._presence = Presence()
        self._heard = 0.0
        anew = target.has_history
        self._remembered = Remembered(self.place, target.source, options, states, limit, anew=anew)
        self.roster = self._remembered.roster

    def start(self) -> None:
        """Begin to poll."""
        self.poller.start()

    def _take(self, events: list[Event]) -> None:
        with self._lock:
            now = time.time()
            # Only a server tells when something was logged that is found late.
            late = max(0.0, now - self._heard) if self.target.has_history else 0.0
            clock = Clock(now, time.monotonic(), live=self.poller.answers > 1, late=late)
            self._heard = now
            for event in events:
                self.roster.take(event, clock)
            for run in self.roster.runs.values():
                run.times.caught_up(clock.wall)
            # no others: names may change at each poll, and the roster takes only so many
            known = self.target.telling & self.roster.runs.keys()
            self._presence.reported(known, clock.steady)

    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life: a page goes with the trainer that serves it, a server outlives its runs."""
        if not self.target.is_trainer:
            return Signs(self._presence.quiet(run, now), None, None)
        answers = self.poller.problem is None
        telling = answers and name in self.target.telling
        pending = answers and self.poller.answered is None
        return self._presence.signs(name, run, now, telling=telling, pending=pending)

    def polled(self) -> list[Polled]:
        return [self.poller.polled()]

    def save(self, health: Health) -> None:
        self._remembered.save(health, self._lock)
