"""Threads that call the driver: one reads a GPU again and again into a report, one listens for errors."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf
from threading import Event as Flag
from threading import Lock, Thread
from typing import NamedTuple

from exporter.gpu.backend import (
    OK,
    STALE_INTERVALS,
    Backend,
    BackendError,
    Card,
    CardError,
    Event,
    Failure,
    Missing,
    Quantity,
    ReadError,
    Reading,
    Tier,
    UnsupportedError,
)
from exporter.http.exposition import escape, number, series

SLOW_INTERVALS = 15
FIND_INTERVALS = 5
"""How often a GPU that is down is tried again; its driver calls may take seconds."""
PROBE_INTERVALS = 300
"""When an unsupported value is tried again, so that one transient error does not disable it for good."""
SLOW_CALL_SECONDS = 1.0
"""A call that takes longer again and again is left out: it ages what else is read from its GPU."""
LONGEST_PENALTY_SECONDS = 3600.0
PAUSE_SECONDS = 0.005
"""At least so long between two readings: a thread that waits to close NVML gets a turn."""
EVENT_SECONDS = 0.4


class Report(NamedTuple):
    """What was last read of a GPU: steady time, time since 1970, reason of ``gpu_up``, text by metric."""

    at: float
    wall: float
    reason: str
    lines: Mapping[str, str]
    seconds: Mapping[str, float]


SILENT = Report(-inf, 0.0, "timeout", {}, {})


class Caller(Thread):
    """Calls the driver again and again; ``lock`` is held meanwhile, ``call`` is the call since ``since``."""

    number, uuid = "", ""
    """Of the GPU that it reads."""

    def __init__(self, name: str, interval: Callable[[], float]) -> None:
        super().__init__(name=name, daemon=True)
        self.lock, self.wake, self.ended = Lock(), Flag(), False
        self.call, self.since = "", inf
        self._interval = interval

    def run(self) -> None:
        while not self.ended:
            began = time.monotonic()
            with self.lock:
                if not self.ended:
                    self.turn(began)
                    self.since = inf
            self.wake.wait(max(PAUSE_SECONDS, began + self.pause() - time.monotonic()))
            self.wake.clear()

    def turn(self, now: float) -> None:
        """Call the driver. ``now`` in seconds of the steady clock."""
        raise NotImplementedError

    def pause(self) -> float:
        """Seconds from one turn to the next."""
        return self._interval()

    def hung(self, now: float) -> str:
        """The name of the call that has not returned for three intervals, empty if there is none."""
        return self.call if now > self.since + STALE_INTERVALS * self._interval() else ""

    def end(self) -> None:
        """Call no more once this turn is over."""
        self.ended = True
        self.wake.set()


class Listener(Caller):
    """Puts critical errors into ``found``."""

    def __init__(self, backend: Backend, found: deque[Event], interval: Callable[[], float]) -> None:
        super().__init__("events", interval)
        self._backend, self._found, self._rest = backend, found, 0.0

    def pause(self) -> float:
        return self._rest * self._interval()

    def turn(self, now: float) -> None:
        self.call, self.since = "EventSetWait", now + EVENT_SECONDS
        try:
            self._found.extend(self._backend.events(EVENT_SECONDS))
            self._rest = 0.0
        except ReadError:  # a lost GPU answers at once, again and again
            self._rest = 1.0


class Reader(Caller):
    """Holds the newest report of a GPU, which it opens first; ``interval`` gives the seconds between two."""

    def __init__(
        self, number: int, backend: Backend, interval: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        super().__init__(f"gpu {number}", interval)
        self.number = str(number)
        self.report = SILENT
        self.until = -inf
        self.down: str | None = None
        self.errors: Counter[tuple[str, str]] = Counter()
        self._backend, self._changed = backend, changed
        self._card: Card | None = None
        self._lost, self._find_at = True, 0.0
        self._failed: list[str] = []
        self._slow: Counter[str] = Counter()
        self._forget()

    def _forget(self) -> None:
        """Forget all that was read."""
        self._due: dict[str, float] = {}
        self._lines: dict[str, list[tuple[str, str]]] = {}
        self._missing: dict[str, dict[str, str]] = {}
        self._seconds: dict[str, float] = {}

    def current(self, now: float) -> Report:
        """The newest report, without values once it is stale. ``now`` of the steady clock."""
        return self.report if now <= self.until else self.report._replace(reason="timeout", lines={})

    def pace(self, before: float, now: float) -> None:
        """Go on at another interval than ``before``; ``now`` of the steady clock."""
        if now <= self.until:
            slower = self.report.at + STALE_INTERVALS * max(before, self._interval())
            self.until = min(slower, now + STALE_INTERVALS * self._interval())
        self.wake.set()

    def turn(self, now: float) -> None:
        self.read(now, time.time())
        self._changed()

    def read(self, now: float, wall: float) -> None:
        """Read what is due. ``now`` in seconds of the steady clock, ``wall`` since 1970."""
        try:
            reason = self._read_all(now)
        except CardError as problem:
            reason = problem.code
            self._forget()
            self._lost = True
            self._find_at = now + FIND_INTERVALS * self._interval() if now >= self._find_at else self._find_at
        except BackendError as problem:
            self.down = reason = problem.code
        lines: dict[str, list[str]] = {}
        for metric, line in (each for found in self._lines.values() for each in found):
            lines.setdefault(metric, []).append(line)
        lines["gpu_exporter_unsupported"] = [
            self._line(Reading("gpu_exporter_unsupported", 1, {"call": call, "reason": why}))
            for part in self._missing.values()
            for call, why in part.items()
        ]
        text = {metric: "".join(each) for metric, each in lines.items() if each}
        self.report = Report(now, wall, reason, text, dict(self._seconds))
        self.until = now + STALE_INTERVALS * self._interval()

    def _read_all(self, now: float) -> str:
        if self._lost:
            if now < self._find_at:
                return self.report.reason
            self.call, self.since = "GetHandleByIndex", time.monotonic()
            card = self._card or self._backend.card(int(self.number))
            if card is self._card:
                card.find()
            self._card, self.uuid, self._lost = card, card.uuid, False
        self._failed.clear()
        took = dict.fromkeys((tier.value for tier in Tier), 0.0)
        for quantity in self._card.quantities if self._card else ():
            if now >= self._due.get(quantity.call, 0.0):
                took[quantity.tier.value] += self._ask(quantity, now)
        self._seconds |= {tier: seconds for tier, seconds in took.items() if seconds}
        if not any(self._lines.values()):
            # a GPU of which every call fails is down, whatever its driver calls the error
            codes = [why for part in self._missing.values() for why in part.values()]
            reasons = Counter([*self._failed, *codes])
            raise CardError(reasons.most_common(1)[0][0] if reasons else "unknown")
        return OK

    def _ask(self, quantity: Quantity, now: float) -> float:
        """Read one quantity. Returns the seconds it took."""
        call = self.call = quantity.call
        self.since = started = time.monotonic()
        pause = {Tier.STATIC: inf, Tier.FAST: 0.0, Tier.SLOW: SLOW_INTERVALS * self._interval()}[
            quantity.tier
        ]
        self._lines.pop(call, None)
        self._missing.pop(call, None)
        failed = ""
        try:
            found = list(quantity.read())
            self._lines[call] = [
                (each.metric, self._line(each)) for each in found if isinstance(each, Reading)
            ]
            self._missing[call] = dict(each for each in found if isinstance(each, Missing))
            self.errors.update(each for each in found if isinstance(each, Failure))
            self._due[call] = now + pause
        except UnsupportedError as problem:
            self._missing[call] = {call: problem.code}
            self._due[call] = now + PROBE_INTERVALS * self._interval()
        except (CardError, BackendError):
            raise
        except ReadError as problem:
            failed = problem.code
        except Exception as surprise:  # noqa: BLE001  (it is one call's: no one else reads this GPU)
            failed = type(surprise).__name__
        if failed:
            self.errors[call, failed] += 1
            self._failed.append(failed)
            self._due[call] = now + min(pause, SLOW_INTERVALS * self._interval())
        took = time.monotonic() - started
        if quantity.tier is not Tier.STATIC:
            # do without a call that was slow twice in a row, for longer each time
            self._slow[call] = self._slow[call] + 1 if took > SLOW_CALL_SECONDS else 0
            if self._slow[call] >= 2:
                penalty = PROBE_INTERVALS * self._interval() * 2 ** (self._slow[call] - 2)
                self._lines.pop(call, None)
                self._missing[call] = {call: "slow"}
                self._due[call] = now + min(penalty, LONGEST_PENALTY_SECONDS)
        return took

    def _line(self, reading: Reading) -> str:
        named = _series(reading.metric, self.number, self.uuid, tuple(reading.labels.items()))
        return f"{named} {number(reading.value)}\n"


@lru_cache(4096)  # next time only the value is new
def _series(metric: str, gpu: str, uuid: str, labels: tuple[tuple[str, str], ...]) -> str:
    return series(metric, f'gpu="{gpu}",uuid="{escape(uuid)}"', dict(labels))
