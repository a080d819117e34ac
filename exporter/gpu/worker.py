"""``python -m exporter.gpu.worker``: the process that owns NVML. The front starts it; no one else does.

It never repairs its connection to the driver. It says what is wrong and ends, and the front starts
another one, which reloads the library.
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
from threading import Condition, Thread
from threading import Event as Flag

from exporter import logging_setup
from exporter.gpu import backend as source
from exporter.gpu.backend import Card, Event, Reading, Report
from exporter.gpu.contract import FRESH, STALE_INTERVALS
from exporter.gpu.dcgm import DcgmWriter
from exporter.gpu.families import GPU_FAMILIES
from exporter.gpu.reader import Reader
from exporter.http.exposition import escape, header, number, series

Chunks = dict[str, list[str]]
"""Lines by metric name."""

MOST_SERIES = 4096
"""So many names with their labels are kept as text: next time only the value is new."""


def message(
    nvml: str,
    system: Iterable[Reading] = (),
    reports: Iterable[tuple[Card, Report]] = (),
    events: Iterable[Event] = (),
    dcgm: DcgmWriter | None = None,
) -> bytes:
    """The line to send. ``nvml`` is the reason of ``gpu_exporter_nvml_up``; ``dcgm`` adds DCGM's names."""
    known = list(reports)
    plain = {
        "nvml": nvml,
        "cards": [(card.number, card.uuid, report.reason) for card, report in known],
        "events": list(events),
        "text": text(system, known) + (dcgm.text(known) if dcgm else ""),
        "dcgm": dcgm.labels if dcgm else {},
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
    """Reads all GPUs each interval and sends what it read.

    ``interval`` in seconds; ``orders`` is the pipe by which the front changes that, and which closes when
    the front goes. ``dcgm``, if any, writes it under DCGM's names as well.
    """

    def __init__(
        self, backend: source.Backend, pipe: int, orders: int, interval: float, dcgm: DcgmWriter | None = None
    ) -> None:
        self._backend = backend
        self._pipe = pipe
        self._orders = orders
        self._usual = self._interval = interval
        self._dcgm = dcgm
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
        except source.BackendError as problem:
            self._send(message(problem.code))
            return FRESH
        self._readers = [Reader(card, self._usual, self._changed) for card in self._backend.cards()]
        for reader in self._readers:
            reader.start()
        self._listener.start()
        gc.freeze()  # current objects stay: the collector need not scan them each time
        reason = self._cycle(system)
        self._close()
        return 0 if reason == source.OK else FRESH

    def stop(self) -> None:
        """End after this cycle."""
        self._stop.set()
        self._wake.set()

    def _cycle(self, system: list[source.Reading]) -> str:
        """Read and report again and again. Returns why it ended, ``ok`` if it was asked to."""
        last = 0.0
        while True:
            began, interval = time.monotonic(), self._interval
            # After a pause every GPU gets time to answer: what is known of it is old.
            self._read((PATIENCE if interval == last else STALE_INTERVALS) * self._usual)
            last = interval
            reason = next((reader.down for reader in self._readers if reader.down), source.OK)
            self._report(reason, system, interval)
            if reason != source.OK or self._pause(began + interval):
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

    def _report(self, reason: str, system: list[source.Reading], interval: float) -> None:
        now = time.monotonic()
        events = [self._events.popleft() for _ in range(len(self._events))]
        if reason == source.OK:
            reports = [(reader.card, reader.current(now, interval)) for reader in self._readers]
            self._send(message(reason, system, reports, events, self._dcgm))
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
            except source.ReadError:  # a lost GPU answers at once, again and again
                self._stop.wait(self._interval)
                continue
            if found:
                self._events.extend(found)
                self._wake.set()

    def _close(self) -> None:
        """Release the devices, unless the driver still holds a thread: it might hold this one too."""
        self._stop.set()
        self._listener.join(1.1 * EVENT_SECONDS)  # it ends when its wait is over
        if self._await(self._readers, END_SECONDS) and not self._listener.is_alive():
            self._backend.close()


def main(name: str, extras: str, interval: str, pipe: str, orders: str, *log: str) -> int:
    """Work for the front that reads the one pipe and writes to the other. Returns the exit code.

    ``log``: the level and the format of the log, which is the front's.
    """
    logging_setup.configure(*log)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a driver that crashes again and again fills disks
    module, _, kind = source.BACKENDS[name].partition(":")
    options = source.Extras(*json.loads(extras))
    backend = getattr(importlib.import_module(module), kind)(options)
    dcgm = DcgmWriter() if options.compat == "dcgm" else None
    worker = Worker(backend, int(pipe), int(orders), float(interval), dcgm)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it is the front's, which may share our name
    return worker.run()


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    os._exit(code)  # threads that the driver holds would keep a normal end waiting
