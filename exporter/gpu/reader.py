"""Reads one GPU again and again, in a thread of its own: one that hangs holds up no other."""

from __future__ import annotations

import time
from collections import Counter
from threading import Condition, Semaphore, Thread

from exporter.gpu.backend import (
    OK,
    BackendError,
    Card,
    CardError,
    Failure,
    Missing,
    Quantity,
    ReadError,
    Reading,
    Report,
    Tier,
    UnsupportedError,
)
from exporter.gpu.contract import STALE_INTERVALS

SLOW_INTERVALS = 15
FIND_INTERVALS = 5
"""How often a GPU that is down is tried again; its driver calls may take seconds."""
PROBE_INTERVALS = 300
"""When an unsupported value is tried again, so that one transient error does not disable it for good."""
SLOW_CALL_SECONDS = 1.0
"""A call that takes longer again and again is left out: it ages what else is read from its GPU."""
LONGEST_PENALTY_SECONDS = 3600.0
TIMEOUT_INTERVALS = 2
CYCLE_INTERVALS = STALE_INTERVALS + 1
"""The longest that a worker waits for all GPUs, and a little more."""


class Reader:
    """Holds the newest ``Report`` of a GPU. ``interval`` in seconds.

    Only the reader's thread calls ``read``; others look at ``idle``, ``report`` and ``down``, the
    reason why the whole backend is gone.
    """

    def __init__(self, card: Card, interval: float, changed: Condition) -> None:
        self.card = card
        self.idle = True
        self.report = Report(time.monotonic(), "timeout")
        self.down: str | None = None
        self._interval = interval
        self._changed = changed
        self._begin = Semaphore(0)
        self._lost = not card.quantities
        self._find_at = 0.0
        self._errors: Counter[tuple[str, str]] = Counter()
        self._failed: list[str] = []
        self._slow: Counter[str] = Counter()
        self._forget()

    def _forget(self) -> None:
        """Forget all that was read."""
        self._due: dict[str, float] = {}
        self._readings: dict[str, list[Reading]] = {}
        self._missing: dict[str, str] = {}
        self._parts: dict[str, dict[str, str]] = {}
        self._seconds: dict[str, float] = {}

    def start(self) -> None:
        """Read from now on, each time when ``begin`` says so."""
        Thread(target=self._run, name=f"gpu {self.card.number}", daemon=True).start()

    def begin(self) -> None:
        """Read once, in the background."""
        self.idle = False
        self._begin.release()

    def current(self, now: float, interval: float) -> Report:
        """The newest report; without values once the thread is overdue.

        ``now`` of the steady clock, ``interval`` seconds from one reading to the next at present. A thread
        that has read in this cycle may have waited long for those of other GPUs.
        """
        if now - self.report.at > (CYCLE_INTERVALS if self.idle else TIMEOUT_INTERVALS) * interval:
            return Report(now, "timeout", errors=self.report.errors)
        return self.report

    def _run(self) -> None:
        while self.down is None:
            self._begin.acquire()
            self.read(time.monotonic())
            with self._changed:
                self.idle = True
                self._changed.notify_all()

    def read(self, now: float) -> None:
        """Read what is due. ``now`` in seconds of the steady clock."""
        try:
            reason = self._read_all(now)
        except CardError as problem:
            reason = problem.code
            self._forget()
            self._lost = True
            if now >= self._find_at:
                self._find_at = now + FIND_INTERVALS * self._interval
        except BackendError as problem:
            self.down = reason = problem.code
        self.report = Report(
            at=now,
            reason=reason,
            readings=tuple(reading for readings in self._readings.values() for reading in readings),
            missing={
                **self._missing,
                **{call: why for part in self._parts.values() for call, why in part.items()},
            },
            errors=dict(self._errors),
            seconds=dict(self._seconds),
        )

    def _read_all(self, now: float) -> str:
        if self._lost and now < self._find_at:
            return self.report.reason
        if self._lost:
            self.card.find()
            self._lost = False
        self._failed.clear()
        took = dict.fromkeys((tier.value for tier in Tier), 0.0)
        for quantity in self.card.quantities:
            if now >= self._due.get(quantity.call, 0.0):
                took[quantity.tier.value] += self._ask(quantity, now)
        self._seconds |= {tier: seconds for tier, seconds in took.items() if seconds}
        if not any(self._readings.values()):
            # a GPU of which every call fails is down, whatever its driver calls the error
            reasons = Counter([*self._failed, *self._missing.values()])
            raise CardError(reasons.most_common(1)[0][0] if reasons else "unknown")
        return OK

    def _ask(self, quantity: Quantity, now: float) -> float:
        """Read one quantity. Returns the seconds it took."""
        call, started = quantity.call, time.monotonic()
        self._readings.pop(call, None)
        self._missing.pop(call, None)
        try:
            found = list(quantity.read())
            self._readings[call] = [each for each in found if isinstance(each, Reading)]
            self._parts[call] = dict(each for each in found if isinstance(each, Missing))
            self._errors.update(each for each in found if isinstance(each, Failure))
            self._due[call] = now + self._pause(quantity.tier)
        except UnsupportedError as problem:
            self._missing[call] = problem.code
            self._due[call] = now + PROBE_INTERVALS * self._interval
        except (CardError, BackendError):
            raise
        except ReadError as problem:
            self._fail(quantity, problem.code, now)
        except Exception as surprise:  # noqa: BLE001  (it is one call's: no one else reads this GPU)
            self._fail(quantity, type(surprise).__name__, now)
        took = time.monotonic() - started
        if quantity.tier is not Tier.STATIC:
            # do without a call that was slow twice in a row, for longer each time
            self._slow[call] = self._slow[call] + 1 if took > SLOW_CALL_SECONDS else 0
            if self._slow[call] >= 2:
                penalty = PROBE_INTERVALS * self._interval * 2 ** (self._slow[call] - 2)
                self._readings.pop(call, None)
                self._missing[call] = "slow"
                self._due[call] = now + min(penalty, LONGEST_PENALTY_SECONDS)
        return took

    def _fail(self, quantity: Quantity, code: str, now: float) -> None:
        self._errors[quantity.call, code] += 1
        self._failed.append(code)
        self._due[quantity.call] = now + min(self._pause(quantity.tier), SLOW_INTERVALS * self._interval)

    def _pause(self, tier: Tier) -> float:
        return {Tier.STATIC: float("inf"), Tier.FAST: 0.0, Tier.SLOW: SLOW_INTERVALS * self._interval}[tier]
