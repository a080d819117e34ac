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
    UNKNOWN,
    Backend,
    BackendError,
    Call,
    Card,
    CardError,
    DriverError,
    Event,
    Problem,
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
LACKING = "gpu_exporter_unsupported"


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

    def __init__(self, name: str, backend: Backend, interval: float) -> None:
        super().__init__(name=name, daemon=True)
        self.lock, self.ended = Lock(), Flag()
        self.call, self.since = "", inf
        self._backend, self._interval, self._pause = backend, interval, interval

    def run(self) -> None:
        while not self.ended.is_set():
            began = time.monotonic()
            with self.lock:
                if not self.ended.is_set():
                    self.turn(began)
                    self.since = inf
            self.ended.wait(max(PAUSE_SECONDS, began + self._pause - time.monotonic()))

    def turn(self, now: float) -> None:
        """Call the driver. ``now`` in seconds of the steady clock."""
        raise NotImplementedError

    def hung(self, now: float) -> str:
        """The name of the call that has not returned for three intervals, empty if there is none."""
        return self.call if now > self.since + STALE_INTERVALS * self._interval else ""


class Listener(Caller):
    """Puts critical errors into ``found``."""

    def __init__(self, backend: Backend, interval: float, found: deque[Event]) -> None:
        super().__init__("events", backend, interval)
        self._found = found

    def turn(self, now: float) -> None:
        self.call, self.since, self._pause = "EventSetWait", now + EVENT_SECONDS, 0
        try:
            self._found.extend(self._backend.events(EVENT_SECONDS))
        except DriverError:  # a lost GPU answers at once, again and again
            self._pause = self._interval


class _State:
    """What a call last gave, what was wrong with it, when it is due, and how often in a row it was slow."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.problems: list[Problem] = []
        self.due, self.slow = 0.0, 0


class Reader(Caller):
    """Holds the newest report of a GPU, which it opens first; calls ``changed`` after each."""

    def __init__(self, number: int, backend: Backend, interval: float, changed: Callable[[], None]) -> None:
        super().__init__(f"gpu {number}", backend, interval)
        self.number, self.report = str(number), SILENT
        self.down = ""
        """Why only reopening NVML helps."""
        self.errors: Counter[tuple[str, str]] = Counter()
        self._changed = changed
        self._card: Card | None = None
        self._lost, self._find_at = True, 0.0
        self._states: dict[str, _State] = {}
        self._seconds: dict[str, float] = {}

    def current(self, now: float) -> Report:
        """The newest report, without values once it is stale. ``now`` of the steady clock."""
        is_stale = now > self.report.at + STALE_INTERVALS * self._interval
        return self.report._replace(reason="timeout", lines={}) if is_stale else self.report

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
                self._find_at = now + FIND_INTERVALS * self._interval
        except BackendError as problem:
            self.down = reason = problem.code
        text: dict[str, str] = {}
        for state in self._states.values():
            for metric, line in state.lines:
                text[metric] = text.get(metric, "") + line
        self.report = Report(now, wall, reason, text, dict(self._seconds))

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
        took: dict[str, float] = {}
        for call in self._card.calls:
            state = self._states.setdefault(call.name, _State())
            if now >= state.due:
                self.call, self.since = call.name, time.monotonic()
                self._ask(self._card, call, state, now)
                took[call.tier.value] = took.get(call.tier.value, 0) + time.monotonic() - self.since
        self._seconds |= took
        states = self._states.values()
        if all(metric == LACKING for state in states for metric, _ in state.lines):
            # a GPU of which every call fails is down, whatever its driver calls the error
            reasons = Counter(each.code for state in states for each in state.problems)
            raise CardError(reasons.most_common(1)[0][0] if reasons else UNKNOWN)
        return OK

    def _ask(self, card: Card, call: Call, state: _State, now: float) -> None:
        """Make one call, and keep what it gives."""
        interval = self._interval
        pause = {Tier.STATIC: inf, Tier.FAST: 0.0, Tier.SLOW: SLOW_INTERVALS * interval}[call.tier]
        try:
            found = list(card.read(call))
        except UnsupportedError as problem:
            found, pause = [Problem(call.name, problem.code, lacking=True)], PROBE_INTERVALS * interval
        except ReadError as problem:
            found = [Problem(call.name, problem.code, lacking=False)]
        except DriverError:
            raise
        except Exception as surprise:  # noqa: BLE001  (it is one call's: no one else reads this GPU)
            found = [Problem(call.name, type(surprise).__name__, lacking=False)]
        is_slow = time.monotonic() - self.since > SLOW_CALL_SECONDS and call.tier is not Tier.STATIC
        state.slow = state.slow + 1 if is_slow else 0
        if state.slow >= 2:  # do without a call that was slow twice in a row, for longer each time
            found = [Problem(call.name, "slow", lacking=True)]
            pause = min(PROBE_INTERVALS * interval * 2 ** (state.slow - 2), LONGEST_PENALTY_SECONDS)
        state.lines, state.problems = [], []
        for each in found:
            if isinstance(each, Reading):
                state.lines.append(self._line(*each))
                continue
            if not each.lacking:
                self.errors[each.call, each.code] += 1
                pause = min(pause, SLOW_INTERVALS * interval)
            elif each not in state.problems:
                state.lines.append(self._line(LACKING, 1, {"call": each.call, "reason": each.code}))
            state.problems.append(each)
        state.due = now + pause

    def _line(self, metric: str, value: float, labels: Mapping[str, str]) -> tuple[str, str]:
        named = _series(metric, self.number, self.uuid, tuple(labels.items()))
        return metric, f"{named} {number(value)}\n"


@lru_cache(4096)  # next time only the value is new
def _series(metric: str, gpu: str, uuid: str, labels: tuple[tuple[str, str], ...]) -> str:
    return series(metric, f'gpu="{gpu}",uuid="{escape(uuid)}"', dict(labels))
