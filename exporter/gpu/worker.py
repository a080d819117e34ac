"""``python -m exporter.gpu.worker``: the process that owns NVML. The front starts it; no one else does.

It reads each GPU in a thread of its own: one that hangs holds up no other. It never repairs its connection
to the driver. It says what is wrong and ends, and the front starts another one, which reloads the library.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable
from functools import lru_cache
from threading import Condition, Semaphore, Thread
from threading import Event as Flag

from exporter import logging_setup
from exporter.gpu.backend import (
    BACKENDS,
    FRESH,
    OK,
    STALE_INTERVALS,
    Backend,
    BackendError,
    Card,
    CardError,
    Event,
    Extras,
    Failure,
    Missing,
    Quantity,
    ReadError,
    Reading,
    Report,
    Tier,
    UnsupportedError,
)
from exporter.gpu.families import GPU_FAMILIES
from exporter.http.exposition import escape, header, number, series

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
    """Holds the newest ``Report`` of a GPU; only its own thread calls ``read``. ``interval`` in seconds."""

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
        """The newest report; without values once the thread is overdue. ``now`` of the steady clock."""
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


Chunks = dict[str, list[str]]
"""Lines by metric name."""

MOST_SERIES = 4096
"""So many names with their labels are kept as text: next time only the value is new."""


def message(
    nvml: str,
    system: Iterable[Reading] = (),
    reports: Iterable[tuple[Card, Report]] = (),
    events: Iterable[Event] = (),
) -> bytes:
    """The line to send. ``nvml`` is the reason of ``gpu_exporter_nvml_up``."""
    known = list(reports)
    plain = {
        "nvml": nvml,
        "cards": [(card.number, card.uuid, report.reason) for card, report in known],
        "events": list(events),
        "text": text(system, known),
    }
    return json.dumps(plain).encode() + b"\n"


def text(system: Iterable[Reading], reports: Iterable[tuple[Card, Report]]) -> str:
    """The exposition text of what was read."""
    chunks: Chunks = {family.name: [] for family in GPU_FAMILIES}
    errors: Counter[tuple[str, str]] = Counter()
    seconds: dict[str, float] = {}
    for card, report in reports:
        label = f'gpu="{card.number}",uuid="{escape(card.uuid)}"'
        for reading in report.readings:
            _add(chunks, label, reading)
        for call, reason in report.missing.items():
            _add(chunks, label, Reading("gpu_exporter_unsupported", 1, {"call": call, "reason": reason}))
        errors.update(report.errors)
        seconds.update({tier: max(took, seconds.get(tier, 0)) for tier, took in report.seconds.items()})
    own = [
        Reading("gpu_exporter_collect_errors_total", count, {"call": call, "code": code})
        for (call, code), count in errors.items()
    ]
    own += [Reading("gpu_exporter_collect_duration_seconds", s, {"tier": t}) for t, s in seconds.items()]
    for reading in (*system, *own):
        _add(chunks, "", reading)
    return "".join(
        header(family) + "".join(chunks[family.name]) for family in GPU_FAMILIES if chunks[family.name]
    )


def _add(chunks: Chunks, label: str, reading: Reading) -> None:
    named = _series(reading.metric, label, tuple(reading.labels.items()))
    chunks[reading.metric].append(f"{named} {number(reading.value)}\n")


@lru_cache(MOST_SERIES)
def _series(metric: str, label: str, labels: tuple[tuple[str, str], ...]) -> str:
    return series(metric, label, dict(labels))


PATIENCE = 0.8
"""Share of an interval for which a cycle waits for slow GPUs."""
END_SECONDS = 0.4
HEAD_START_SECONDS = 0.02
"""Threads that start together wait for each other at every call; staggered, they take half as long."""
EVENT_SECONDS = 0.4
STORM_SECONDS = 0.05
"""A GPU may report errors by the thousand: those within so long are reported together."""


class Worker:
    """Reads all GPUs each ``interval`` (seconds) and sends what it read; the pipe ``orders`` changes it."""

    def __init__(self, backend: Backend, pipe: int, orders: int, interval: float) -> None:
        self._backend = backend
        self._pipe = pipe
        self._orders = orders
        self._usual = self._interval = interval
        self._stop = Flag()
        self._wake = Flag()
        self._changed = Condition()
        self._events: deque[Event] = deque()
        self._readers: list[Reader] = []
        self._listener = Thread(target=self._listen, name="events", daemon=True)

    def run(self) -> int:
        """Read until asked to stop, or until only a new worker helps. Returns the exit code."""
        Thread(target=self._follow_orders, name="orders", daemon=True).start()
        try:
            self._backend.open()
            system = self._backend.system()
        except BackendError as problem:
            self._send(message(problem.code))
            return FRESH
        self._readers = [Reader(card, self._usual, self._changed) for card in self._backend.cards()]
        for reader in self._readers:
            reader.start()
        self._listener.start()
        gc.freeze()  # current objects stay: the collector need not scan them each time
        reason = self._cycle(system)
        # Release the devices, unless the driver still holds a thread: it might hold this one too.
        self._stop.set()
        self._listener.join(1.1 * EVENT_SECONDS)  # it ends when its wait is over
        if self._await(self._readers, END_SECONDS) and not self._listener.is_alive():
            self._backend.close()
        return 0 if reason == OK else FRESH

    def stop(self) -> None:
        """End after this cycle."""
        self._stop.set()
        self._wake.set()

    def _cycle(self, system: list[Reading]) -> str:
        """Read and report again and again. Returns why it ended, ``ok`` if it was asked to."""
        last = 0.0
        while True:
            began, interval = time.monotonic(), self._interval
            # After a pause every GPU gets time to answer: what is known of it is old.
            self._read((PATIENCE if interval == last else STALE_INTERVALS) * self._usual)
            last = interval
            reason = next((reader.down for reader in self._readers if reader.down), OK)
            self._report(reason, system, interval)
            if reason != OK or self._pause(began + interval):
                return reason

    def _read(self, patience: float) -> None:
        """Have every GPU read that is not busy still, and wait for those that are usually in time."""
        due = [reader for reader in self._readers if reader.idle]
        until = time.monotonic() + patience
        for reader in due:
            reader.begin()
            self._await([reader], HEAD_START_SECONDS)
        self._await(due, until - time.monotonic())

    def _await(self, readers: list[Reader], seconds: float) -> bool:
        """Wait at most that long until they have read."""
        with self._changed:
            return self._changed.wait_for(lambda: all(reader.idle for reader in readers), seconds)

    def _report(self, reason: str, system: list[Reading], interval: float) -> None:
        now = time.monotonic()
        events = [self._events.popleft() for _ in range(len(self._events))]
        if reason == OK:
            reports = [(reader.card, reader.current(now, interval)) for reader in self._readers]
            self._send(message(reason, system, reports, events))
        else:
            self._send(message(reason, events=events))

    def _pause(self, until: float) -> bool:
        """Wait for the next cycle, which an Xid error brings forward. True if it is the end."""
        self._stop.wait(STORM_SECONDS)
        self._wake.wait(max(0.0, until - time.monotonic()))
        self._wake.clear()
        return self._stop.is_set()

    def _send(self, message: bytes) -> None:
        rest = memoryview(message)
        try:
            while rest:
                rest = rest[os.write(self._pipe, rest) :]
        except BrokenPipeError:
            self.stop()

    def _follow_orders(self) -> None:
        with os.fdopen(self._orders) as orders:
            for order in orders:
                self._interval = float(order)
                self._wake.set()
        self.stop()  # the front has ended

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                found = self._backend.events(EVENT_SECONDS)
            except ReadError:  # a lost GPU answers at once, again and again
                self._stop.wait(self._interval)
                continue
            if found:
                self._events.extend(found)
                self._wake.set()


def main(name: str, extras: str, interval: str, pipe: str, orders: str, *log: str) -> int:
    """Work for the front that reads the one pipe and writes to the other. Returns the exit code."""
    logging_setup.configure(*log)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a driver that crashes again and again fills disks
    module, _, kind = BACKENDS[name].partition(":")
    options = Extras(*json.loads(extras))
    backend = getattr(importlib.import_module(module), kind)(options)
    worker = Worker(backend, int(pipe), int(orders), float(interval))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it is the front's, which may share our name
    return worker.run()


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    os._exit(code)  # threads that the driver holds would keep a normal end waiting
