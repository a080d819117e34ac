"""Workers as the front sees them: started, ended when silent, replaced when they miss a GPU."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from exporter.gpu.backend import FRESH, OK, STALE_INTERVALS, UNKNOWN, Extras
from exporter.gpu.state import State

REASONS = ("version_mismatch", UNKNOWN, "lost")
"""The old driver's library is mounted still, or the devices were taken from the container."""


class RestartPolicy:
    """``patience`` in seconds; 0 for never.

    What could not be read from the start is no reason: then a restart did not fix it, and the next would
    not either.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._well = False
        self._since: float | None = None

    def lasts(self, reason: str, now: float) -> bool:
        """Whether to restart. ``reason`` why no GPU can be read, ``now`` of the steady clock."""
        self._well = self._well or reason == OK
        if not self._well or reason not in REASONS:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return 0 < self.patience <= now - self._since


IDLE_INTERVAL_SECONDS = 15.0


class Interval:
    """In seconds: ``usual`` between two readings, ``patience`` without a scrape until they are rare."""

    def __init__(self, usual: float, patience: float, now: float) -> None:
        self.usual = usual
        self.patience = patience
        self._last = now

    def scraped(self, now: float) -> None:
        """The page was requested. ``now`` of the steady clock."""
        self._last = now

    def seconds(self, now: float) -> float:
        """From one reading to the next. ``now`` of the steady clock."""
        idle = now - self._last > self.patience
        return max(self.usual, IDLE_INTERVAL_SECONDS) if idle else self.usual


OPENING_SECONDS = 60.0
"""Without persistence mode the driver takes seconds per GPU to answer."""
END_SECONDS = 1.0
"""From SIGTERM to SIGKILL: time enough to release the devices."""
STUCK_SECONDS = 3.0
MOST_RETRIES = 32


class Limits(NamedTuple):
    """Seconds: ``retry`` doubles up to 32 times; after ``hang`` (and three intervals) a worker is killed."""

    retry: float
    hang: float


READ_BYTES = 65536


class WorkerProcess:
    """Starts a worker at once. ``interval`` in seconds; all times are of the steady clock."""

    def __init__(self, backend: str, extras: Extras, interval: float, log: tuple[str, str]) -> None:
        self._pipe, output = os.pipe()
        orders, self._orders = os.pipe()
        os.set_blocking(self._pipe, False)
        for theirs in (output, orders):
            os.set_inheritable(theirs, True)  # noqa: FBT003  (it takes no keywords)
        command = [sys.executable, "-m", "exporter.gpu.worker"]
        words = [*command, backend, json.dumps(extras), str(interval), str(output), str(orders), *log]
        # In a process group of its own: Ctrl-C is the front's to answer.
        self.pid = os.posix_spawn(sys.executable, words, os.environ, setpgroup=0)
        for theirs in (output, orders):
            os.close(theirs)
        self._rest = b""
        self.exit: int | None = None
        self.heard: float | None = None
        self._ordered = self._since = time.monotonic()
        self._killed = False

    def messages(self, now: float) -> list[dict[str, Any]]:
        """What it sent since the last call."""
        with suppress(BlockingIOError):
            while block := os.read(self._pipe, READ_BYTES):
                self._rest += block
        *lines, self._rest = self._rest.split(b"\n")
        self.heard = now if lines else self.heard
        return [json.loads(line) for line in lines]

    def order(self, interval: float, now: float) -> None:
        """Have it read at this interval (seconds) from now on."""
        with suppress(BrokenPipeError):
            os.write(self._orders, f"{interval}\n".encode())
        self._ordered = now

    def ended(self) -> bool:
        """Whether the process has ended. One that hangs in the driver stays, even after SIGKILL."""
        if self.exit is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.exit = os.waitstatus_to_exitcode(status) if pid else None
        return self.exit is not None

    def end(self, number: signal.Signals, now: float) -> None:
        """Send a signal, unless it has ended, and close both pipes, which ends it."""
        if not self.ended():
            os.kill(self.pid, number)
        self.close()
        self._killed, self._since = number is signal.SIGKILL, now

    def gone(self, now: float) -> bool:
        """Whether it has ended; if not a second after `end`, kill it."""
        if not self._killed and self.age(now) > END_SECONDS:
            self._killed = True
            if not self.ended():
                os.kill(self.pid, signal.SIGKILL)
        return self.ended()

    def close(self) -> None:
        """Close both pipes."""
        os.close(self._pipe)
        os.close(self._orders)

    def age(self, now: float) -> float:
        """Seconds since it was started, or asked to end."""
        return now - self._since

    def silent(self, now: float, longest: float) -> bool:
        """Whether it has sent nothing for longer than that, or for too long since its start."""
        if self.heard is None:
            return self.age(now) > OPENING_SECONDS
        return now - max(self.heard, self._ordered) > longest

    def held(self) -> bool:
        """Whether the driver holds one of its threads so that not even SIGKILL would end it."""
        folder = f"/proc/{self.pid}/task"
        with suppress(OSError):  # it ended just now, or this is not Linux
            for task in os.listdir(folder):  # noqa: PTH208
                with open(f"{folder}/{task}/stat") as stat:  # noqa: PTH123  (pathlib weighs 1 MB)
                    if stat.read().rpartition(")")[2].split()[0] == "D":
                        return True
        return False


class Supervisor:
    """Call ``tick`` often. ``start`` makes a worker."""

    def __init__(
        self, start: Callable[[], WorkerProcess], state: State, interval: Interval, limits: Limits
    ) -> None:
        self._start = start
        self._state = state
        self._interval = interval
        self._limits = limits
        self._seconds = interval.usual
        self._worker: WorkerProcess | None = None
        self._successor: WorkerProcess | None = None
        self._leaving: list[WorkerProcess] = []
        self._pause = limits.retry
        self._next = 0.0
        self._outdated = False
        self._mig_changed = False

    def tick(self, now: float, wall: float) -> None:
        """Read what the workers sent and do what is due. ``now`` of the steady clock, ``wall`` since 1970."""
        self._leaving = [worker for worker in self._leaving if not worker.gone(now)]
        if self._worker is not None and self._worker.heard is not None and self._state.well:
            self._pause = self._limits.retry
            self._next = self._next if self._outdated else now + self._pause
        seconds = self._interval.seconds(now)
        if seconds != self._seconds:
            self._seconds = seconds
            self._state.await_each(seconds, now)
            for worker in filter(None, (self._worker, self._successor)):
                worker.order(seconds, now)
        # reopening NVML helps a GPU whose MIG layout changed, even if it did not help another
        if self._state.repartitioned and not self._mig_changed:
            self._next = now
        self._mig_changed = self._state.repartitioned
        if self._worker is None:
            # Start a worker, unless the driver holds one that was killed: it would hold the next one too.
            stuck = self.stuck(now)
            if stuck or self._state.silence == "stuck":
                self._state.silence = "stuck" if stuck else None
            if not self._leaving and now >= self._next:
                if self._state.released:
                    self._state.resume()
                self._outdated, self._next = False, now + self._pause
                self._worker = self._begin(now)
        else:
            self._attend(self._worker, now, wall)
        if self._successor is not None:
            self._try(self._successor, now, wall)

    def renew(self, start: Callable[[], WorkerProcess], limits: Limits, now: float) -> None:
        """Start workers like this from now on, and replace the present one once another has read."""
        self._start, self._limits = start, limits
        self._end(self._successor, signal.SIGTERM, now)
        self._successor = None
        if self._worker is not None:
            self._outdated, self._next = True, now

    def release(self, seconds: float, now: float) -> None:
        """Release the devices at once, and start no worker for so long; 0 takes them back."""
        if seconds:
            self._state.release()
            for worker in (self._worker, self._successor):
                self._end(worker, signal.SIGTERM, now)
            self._worker = self._successor = None
        if self._state.released:
            self._pause, self._next = self._limits.retry, now + seconds

    def stop(self) -> None:
        """End all workers, within a second or so."""
        for worker in (self._worker, self._successor):
            self._end(worker, signal.SIGTERM, time.monotonic())
        give_up = time.monotonic() + 2 * END_SECONDS
        while self._leaving and time.monotonic() < give_up:
            time.sleep(0.02)
            self._leaving = [worker for worker in self._leaving if not worker.gone(time.monotonic())]

    def stuck(self, now: float) -> bool:
        """Whether the driver holds a worker that was killed, and its devices with it."""
        return bool(self._leaving) and self._leaving[0].age(now) > STUCK_SECONDS

    @property
    def free(self) -> bool:
        """Whether there is no worker that might have a device open."""
        return self._worker is None and not self._leaving

    def _attend(self, worker: WorkerProcess, now: float, wall: float) -> None:
        ended = worker.ended()
        for message in worker.messages(now):
            self._state.update(message, now, wall)
            self._state.count(message["events"])
        if ended:
            worker.close()
            self._worker = None
            if worker.exit == FRESH:
                self._state.reinits += 1
            else:
                self._state.restarts["died"] += 1
                self._state.silence = "crashed"
            self._postpone(now)
        elif worker.silent(now, self._longest_silence):
            self._state.restarts["hung"] += 1
            self._state.silence = "timeout"
            self._worker = None
            self._end(worker, signal.SIGKILL, now)
            self._postpone(now)
        elif (self._outdated or not self._state.well) and self._may_have_successor(worker, now):
            # another worker reopens NVML, while this one continues with the GPUs that work
            self._successor = self._begin(now)

    def _may_have_successor(self, worker: WorkerProcess, now: float) -> bool:
        due = self._successor is None and now >= self._next
        return due and worker.heard is not None and not self._leaving and not worker.held()

    @property
    def _longest_silence(self) -> float:
        return max(self._limits.hang, STALE_INTERVALS * self._seconds)

    def _begin(self, now: float) -> WorkerProcess:
        worker = self._start()
        if self._seconds != self._interval.usual:
            worker.order(self._seconds, now)
        return worker

    def _try(self, successor: WorkerProcess, now: float, wall: float) -> None:
        """Let the successor take over if it can read more GPUs, or has newer settings."""
        ended = successor.ended()
        messages = successor.messages(now)
        if not (messages or ended or successor.silent(now, self._longest_silence)):
            return
        self._successor = None
        self._postpone(now)
        if messages:
            working = sum(reason == OK for _, _, reason in messages[-1]["cards"])
            if working > self._state.working or (self._outdated and messages[-1]["nvml"] == OK):
                self._end(self._worker, signal.SIGTERM, now)
                self._worker, self._outdated = successor, False
                self._state.reinits += 1
                self._state.update(messages[-1], now, wall)
                return
        self._end(successor, signal.SIGTERM, now)

    def _postpone(self, now: float) -> None:
        self._next = now + self._pause
        self._pause = min(2 * self._pause, MOST_RETRIES * self._limits.retry)

    def _end(self, worker: WorkerProcess | None, number: signal.Signals, now: float) -> None:
        if worker is not None:
            worker.end(number, now)
            self._leaving.append(worker)
