"""Keeps a worker at work: starts it, ends one that is silent, replaces one that misses a GPU."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from exporter.gpu.backend import OK
from exporter.gpu.contract import FRESH, STALE_INTERVALS, UNKNOWN
from exporter.gpu.state import State
from exporter.gpu.worker_process import WorkerProcess

REASONS = ("version_mismatch", UNKNOWN, "lost")
"""The old driver's library is mounted still, or the devices were taken from the container."""


class RestartPolicy:
    """``patience`` in seconds; 0 for never.

    What could not be read from the start is no reason: then a restart was no fix, and the next would be
    none either.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._well = False
        self._since: float | None = None

    def lasts(self, reason: str, now: float) -> bool:
        """Is it time for a restart? ``reason`` why no GPU can be read, ``now`` of the steady clock."""
        self._well = self._well or reason == OK
        if not self._well or reason not in REASONS:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return 0 < self.patience <= now - self._since


IDLE_INTERVAL_SECONDS = 15.0


class Interval:
    """In seconds: ``usual`` between two readings, ``patience`` without a look until they are seldom."""

    def __init__(self, usual: float, patience: float, now: float) -> None:
        self.usual = usual
        self.patience = patience
        self._looked = now

    def look(self, now: float) -> None:
        """Someone asks for the page. ``now`` of the steady clock."""
        self._looked = now

    def interval(self, now: float) -> float:
        """From one reading to the next. ``now`` of the steady clock."""
        idle = now - self._looked > self.patience
        return max(self.usual, IDLE_INTERVAL_SECONDS) if idle else self.usual


OPENING_SECONDS = 60.0
"""Without persistence mode the driver needs seconds for each GPU before it answers."""
END_SECONDS = 1.0
"""From SIGTERM to SIGKILL: time enough to release the devices."""
STUCK_SECONDS = 3.0
MOST_RETRIES = 32


class Limits(NamedTuple):
    """Both in seconds.

    ``retry`` until what is missing is looked for again, doubled each time up to 32 times that; ``hang``,
    and at least three intervals: silence after which a worker is killed.
    """

    retry: float
    hang: float


class Supervisor:
    """Call ``tick`` often. ``start`` makes a worker."""

    def __init__(
        self, start: Callable[[], WorkerProcess], box: State, pace: Interval, limits: Limits
    ) -> None:
        self._start = start
        self._box = box
        self._pace = pace
        self._limits = limits
        self._interval = pace.usual
        self._worker: _Post | None = None
        self._heir: _Post | None = None
        self._leaving: list[_Post] = []
        self._pause = limits.retry
        self._next = 0.0
        self._outdated = False
        self._hastened = False

    def tick(self, now: float, wall: float) -> None:
        """Hear the worker and do what is due. ``now`` of the steady clock, ``wall`` since 1970."""
        self._leaving = [post for post in self._leaving if not post.gone(now)]
        if self._worker is not None and self._worker.heard is not None and self._box.well:
            self._pause = self._limits.retry
            self._next = self._next if self._outdated else now + self._pause
        self._keep_pace(now)
        self._hasten(now)
        if self._worker is None:
            self._fill(now)
        else:
            self._attend(self._worker, now, wall)
        if self._heir is not None:
            self._try(self._heir, now, wall)

    def renew(self, start: Callable[[], WorkerProcess], limits: Limits, now: float) -> None:
        """Have workers started like this from now on, and the present one replaced once another has read."""
        self._start, self._limits = start, limits
        self._dismiss(self._heir, signal.SIGTERM, now)
        self._heir = None
        if self._worker is not None:
            self._outdated, self._next = True, now

    def release(self, seconds: float, now: float) -> None:
        """Release the devices at once, and start no worker for so long; 0 takes them back."""
        if seconds:
            self._box.release()
            for post in (self._worker, self._heir):
                self._dismiss(post, signal.SIGTERM, now)
            self._worker = self._heir = None
        if self._box.released:
            self._pause, self._next = self._limits.retry, now + seconds

    def stop(self) -> None:
        """End all workers, within a second or so."""
        for post in (self._worker, self._heir):
            self._dismiss(post, signal.SIGTERM, time.monotonic())
        give_up = time.monotonic() + 2 * END_SECONDS
        while self._leaving and time.monotonic() < give_up:
            time.sleep(0.02)
            self._leaving = [post for post in self._leaving if not post.gone(time.monotonic())]

    def stuck(self, now: float) -> bool:
        """Does the driver hold a worker that was killed, and its devices with it?"""
        return bool(self._leaving) and self._leaving[0].age(now) > STUCK_SECONDS

    @property
    def free(self) -> bool:
        """Is there no worker that might have a device open?"""
        return self._worker is None and not self._leaving

    def _keep_pace(self, now: float) -> None:
        interval = self._pace.interval(now)
        if interval != self._interval:
            self._interval = interval
            self._box.await_each(interval, now)
            for post in (self._worker, self._heir):
                if post is not None:
                    post.order(interval, now)

    def _hasten(self, now: float) -> None:
        """To open NVML anew helps a GPU that was split, however often it did not help another."""
        if self._box.split_anew and not self._hastened:
            self._next = now
        self._hastened = self._box.split_anew

    def _fill(self, now: float) -> None:
        """Start a worker, unless the driver holds one that was killed: it would hold the next one too."""
        stuck = self.stuck(now)
        if stuck or self._box.silence == "stuck":
            self._box.silence = "stuck" if stuck else None
        if not self._leaving and now >= self._next:
            if self._box.released:
                self._box.resume()
            self._outdated, self._next = False, now + self._pause
            self._worker = self._begin(now)

    def _attend(self, worker: _Post, now: float, wall: float) -> None:
        ended = worker.child.ended()
        for message in worker.hear(now):
            self._box.take(message, now, wall)
            self._box.count(message["events"])
        if ended:
            self._ended(worker, now)
        elif worker.silent(now, self._patience):
            self._box.restarts["hung"] += 1
            self._box.silence = "timeout"
            self._worker = None
            self._dismiss(worker, signal.SIGKILL, now)
            self._later(now)
        elif self._heir is None and now >= self._next and (self._outdated or not self._box.well):
            self._replace(worker, now)

    @property
    def _patience(self) -> float:
        return max(self._limits.hang, STALE_INTERVALS * self._interval)

    def _ended(self, worker: _Post, now: float) -> None:
        worker.child.close()
        self._worker = None
        if worker.child.exit == FRESH:
            self._box.reinits += 1
        else:
            self._box.restarts["died"] += 1
            self._box.silence = "crashed"
        self._later(now)

    def _replace(self, worker: _Post, now: float) -> None:
        """Have another worker open NVML anew, while this one goes on with the GPUs that work."""
        if worker.heard is None or self._leaving or worker.child.held():
            return
        self._heir = self._begin(now)

    def _begin(self, now: float) -> _Post:
        post = _Post(self._start(), now)
        if self._interval != self._pace.usual:
            post.order(self._interval, now)
        return post

    def _try(self, heir: _Post, now: float, wall: float) -> None:
        """Let the heir take over if it can read more GPUs, or has newer settings."""
        ended = heir.child.ended()
        messages = heir.hear(now)
        if not (messages or ended or heir.silent(now, self._patience)):
            return
        self._heir = None
        self._later(now)
        if not messages or not self._better(messages[-1]):
            self._dismiss(heir, signal.SIGTERM, now)
            return
        self._dismiss(self._worker, signal.SIGTERM, now)
        self._worker, self._outdated = heir, False
        self._box.reinits += 1
        self._box.take(messages[-1], now, wall)

    def _better(self, message: dict[str, Any]) -> bool:
        working = sum(reason == OK for _, _, reason in message["cards"])
        return working > self._box.working or (self._outdated and message["nvml"] == OK)

    def _later(self, now: float) -> None:
        self._next = now + self._pause
        self._pause = min(2 * self._pause, MOST_RETRIES * self._limits.retry)

    def _dismiss(self, post: _Post | None, number: signal.Signals, now: float) -> None:
        if post is not None:
            post.leave(number, now)
            self._leaving.append(post)


class _Post:
    """A worker, and since when: all times of the steady clock."""

    def __init__(self, child: WorkerProcess, now: float) -> None:
        self.child = child
        self.heard: float | None = None
        self._ordered = self._since = now
        self._killed = False

    def age(self, now: float) -> float:
        """Seconds since it was started, or asked to leave."""
        return now - self._since

    def hear(self, now: float) -> list[dict[str, Any]]:
        found = self.child.messages()
        self.heard = now if found else self.heard
        return found

    def silent(self, now: float, hang: float) -> bool:
        if self.heard is None:
            return self.age(now) > OPENING_SECONDS
        return now - max(self.heard, self._ordered) > hang

    def order(self, interval: float, now: float) -> None:
        """Have it read each so many seconds."""
        self.child.order(interval)
        self._ordered = now

    def leave(self, number: signal.Signals, now: float) -> None:
        self.child.end(number)
        self.child.close()
        self._killed = number is signal.SIGKILL
        self._since = now

    def gone(self, now: float) -> bool:
        if not self._killed and self.age(now) > END_SECONDS:
            self.child.end(signal.SIGKILL)
            self._killed = True
        return self.child.ended()
