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
    Backend,
    BackendError,
    Call,
    Card,
    CardError,
    Event,
    ReadError,
    Reading,
    Tier,
    UnsupportedError,
)
from exporter.http.exposition import escape, number, series

STALE_INTERVALS = 3
"""No value is served that is older than this."""
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

    def __init__(self, name: str, backend: Backend, interval: Callable[[], float]) -> None:
        super().__init__(name=name, daemon=True)
        self.lock, self.wake, self.ended = Lock(), Flag(), False
        self.call, self.since = "", inf
        self._backend, self._interval = backend, interval

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

    def __init__(self, backend: Backend, interval: Callable[[], float], found: deque[Event]) -> None:
        super().__init__("events", backend, interval)
        self._found, self._rest = found, 0.0

    def pause(self) -> float:
        return self._rest * self._interval()

    def turn(self, now: float) -> None:
        self.call, self.since = "EventSetWait", now + EVENT_SECONDS
        try:
            self._found.extend(self._backend.events(EVENT_SECONDS))
            self._rest = 0.0
        except ReadError:  # a lost GPU answers at once, again and again
            self._rest = 1.0


class _State:
    """What a call last gave, when it is due, and how often in a row it was slow."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.lacking: dict[str, str] = {}
        self.due, self.slow = 0.0, 0


class Reader(Caller):
    """Holds the newest report of a GPU, which it opens first; calls ``changed`` after each."""

    def __init__(
        self, number: int, backend: Backend, interval: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        super().__init__(f"gpu {number}", backend, interval)
        self.number, self.report, self.until = str(number), SILENT, -inf
        self.down: str | None = None
        self.errors: Counter[tuple[str, str]] = Counter()
        self._changed = changed
        self._card: Card | None = None
        self._lost, self._find_at = True, 0.0
        self._states: dict[str, _State] = {}
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
            reason, self._lost = problem.code, True
            self._states, self._seconds = {}, {}
            if now >= self._find_at:
                self._find_at = now + FIND_INTERVALS * self._interval()
        except BackendError as problem:
            self.down = reason = problem.code
        text: dict[str, str] = {}
        for state in self._states.values():
            for metric, line in state.lines:
                text[metric] = text.get(metric, "") + line
            for call, why in state.lacking.items():
                metric, line = self._line(
                    Reading("gpu_exporter_unsupported", 1, {"call": call, "reason": why})
                )
                text[metric] = text.get(metric, "") + line
        self.report = Report(now, wall, reason, text, dict(self._seconds))
        self.until = now + STALE_INTERVALS * self._interval()

    def _read_all(self, now: float) -> str:
        """Open the GPU if it is not, make the calls that are due. Returns the reason of ``gpu_up``."""
        if self._lost or self._card is None:
            if now < self._find_at:
                return self.report.reason
            self.call, self.since = "GetHandleByIndex", time.monotonic()
            if self._card:
                self._card.find()
            else:
                self._card = self._backend.card(int(self.number))
            self.uuid, self._lost = self._card.uuid, False
        failed: list[str] = []
        took: dict[str, float] = {}
        for call in self._card.calls:
            state = self._states.setdefault(call.name, _State())
            if now >= state.due:
                self.call, self.since = call.name, time.monotonic()
                failed += self._ask(self._card, call, state, now)
                took[call.tier.value] = took.get(call.tier.value, 0) + time.monotonic() - self.since
        self._seconds |= took
        states = self._states.values()
        if not any(state.lines for state in states):
            # a GPU of which every call fails is down, whatever its driver calls the error
            reasons = Counter([*failed, *(why for state in states for why in state.lacking.values())])
            raise CardError(reasons.most_common(1)[0][0] if reasons else "unknown")
        return OK

    def _ask(self, card: Card, call: Call, state: _State, now: float) -> list[str]:
        """Make one call. Returns why it failed, if it did."""
        interval = self._interval()
        pause = {Tier.STATIC: inf, Tier.FAST: 0.0, Tier.SLOW: SLOW_INTERVALS * interval}[call.tier]
        state.lines, state.lacking, state.due = [], {}, now + pause
        failed = []
        try:
            for each in card.read(call):
                if isinstance(each, Reading):
                    state.lines.append(self._line(each))
                elif each.lacking:
                    state.lacking[each.call] = each.code
                else:
                    self.errors[each.call, each.code] += 1
        except UnsupportedError as problem:
            state.lacking, state.due = {call.name: problem.code}, now + PROBE_INTERVALS * interval
        except (CardError, BackendError):
            raise
        except ReadError as problem:
            failed = [problem.code]
        except Exception as surprise:  # noqa: BLE001  (it is one call's: no one else reads this GPU)
            failed = [type(surprise).__name__]
        if failed:
            self.errors[call.name, failed[0]] += 1
            state.due = now + min(pause, SLOW_INTERVALS * interval)
        is_slow = time.monotonic() - self.since > SLOW_CALL_SECONDS and call.tier is not Tier.STATIC
        state.slow = state.slow + 1 if is_slow else 0
        if state.slow >= 2:  # do without a call that was slow twice in a row, for longer each time
            penalty = min(PROBE_INTERVALS * interval * 2 ** (state.slow - 2), LONGEST_PENALTY_SECONDS)
            state.lines, state.lacking, state.due = [], {call.name: "slow"}, now + penalty
        return failed

    def _line(self, reading: Reading) -> tuple[str, str]:
        named = _series(reading.metric, self.number, self.uuid, tuple(reading.labels.items()))
        return reading.metric, f"{named} {number(reading.value)}\n"


@lru_cache(4096)  # next time only the value is new
def _series(metric: str, gpu: str, uuid: str, labels: tuple[tuple[str, str], ...]) -> str:
    return series(metric, f'gpu="{gpu}",uuid="{escape(uuid)}"', dict(labels))
