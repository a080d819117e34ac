"""A thread that polls one target, so that a server that hangs holds up no other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread

from exporter.runs.exporter_health import Polled
from exporter.runs.remote import Target
from exporter.runs.remote.web import PollError
from exporter.runs.signals.record import Event

logger = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds between two attempts at a target that fails: twice as many each time."""


class Poller:
    """Polls from ``start`` until ``stop``.

    ``problem`` says why the last attempt failed, ``answered`` is when one last succeeded, in seconds
    of the steady clock, ``answered_at`` the same since the epoch. ``answers`` and ``errors`` count both.

    Args:
        target: What is polled.
        interval: Seconds between two polls.
        take: Gets the events of each poll that succeeds, also if there are none, in the thread that polls.
    """

    def __init__(self, target: Target, interval: float, take: Callable[[list[Event]], None]) -> None:
        self.target = target
        self.problem: str | None = None
        self.answered: float | None = None
        self.answered_at: float | None = None
        self.answers = self.errors = 0
        self._logged: tuple[str, ...] = ()
        self._interval = interval
        self._take = take
        self._stop = Flag()
        self._pause = interval
        self._retry = self._first = min(FIRST_PAUSE, interval)

    def start(self) -> None:
        """Begin to poll."""
        # A daemon: a request that hangs must not keep the exporter from ending.
        Thread(target=self._run, name=f"poll {self.target.name}", daemon=True).start()

    def stop(self) -> None:
        """Have it end, at once; a request that is under way ends by itself, and what it brings is dropped."""
        self._stop.set()

    def polled(self) -> Polled:
        """How the polls went so far."""
        target = self.target
        return Polled(target.name, target.source, self.problem is None, self.errors, self.answered_at)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._poll()
            self._stop.wait(self._pause)

    def _poll(self) -> None:
        try:
            self._hand_over(self.target.poll())
        except PollError as problem:
            self._failed(str(problem))
        except Exception as fault:  # noqa: BLE001  (an answer that no one thought of must not end the polls)
            self._failed(f"{self.target.name}: {type(fault).__name__}, an internal error of Stepwatch", fault)

    def _hand_over(self, events: list[Event]) -> None:
        if self._stop.is_set():
            return
        self.answered, self.answered_at = time.monotonic(), time.time()
        self.answers += 1
        self._take(events)
        if self.problem is not None:
            logger.info("%s answers again.", self.target.name)
        self.problem, self._pause, self._retry = None, self._interval, self._first
        self._log(self.target.lacking)

    def _failed(self, problem: str, fault: Exception | None = None) -> None:
        self.problem = problem
        self.errors += 1
        self._pause = self._retry
        self._retry = min(2 * self._retry, max(self._interval, LONGEST_PAUSE))
        self._log((problem,), fault)

    def _log(self, problems: tuple[str, ...], fault: Exception | None = None) -> None:
        """Log why the target gives no answer, or not all of it, once for each reason."""
        for problem in problems:
            if problem not in self._logged and not self._stop.is_set():
                logger.warning("%s", problem, exc_info=fault)
        self._logged = problems
