"""All GPUs of this machine: NVML opened and closed, what is known of each GPU, and the page."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from threading import Event as Flag
from threading import RLock, Thread
from typing import Any

from exporter import __version__
from exporter.gpu import families
from exporter.gpu.backend import (
    CRITICAL_XIDS,
    MIG_CHANGED,
    NVML_REASONS,
    OK,
    RELEASED,
    STALE_INTERVALS,
    UNKNOWN,
    Backend,
    BackendError,
    Event,
)
from exporter.gpu.reader import EVENT_SECONDS, SILENT, Caller, Listener, Reader, Report
from exporter.http.exposition import Family, Sample, header, lines, process_metrics

logger = logging.getLogger(__name__)

IDLE_INTERVAL_SECONDS = 15.0
OPENING_SECONDS = 60.0
"""Without persistence mode the driver takes seconds per GPU to answer."""
HEAD_START_SECONDS = 0.02
"""Threads that start together wait for each other at every call; staggered, they take half as long."""
END_SECONDS = EVENT_SECONDS + 0.6
"""From the request to close NVML until a call that has not returned counts as hung."""
RELEASE_SECONDS = END_SECONDS + 0.5
"""From the request to release the devices until only the end of this process can do that."""
FIRST_SECONDS = 2.0
"""What opens and is read in this time is there from the first page on."""
MOST_RETRIES = 32
"""To how many times ``retry`` the pause between two tries grows; ten times that while some GPU works."""
CURABLE = ("version_mismatch", UNKNOWN, "lost")
"""The old driver's library is mounted still, or the devices were taken from the container."""
_CALM = {
    OK: logging.INFO,
    "starting": logging.INFO,
    RELEASED: logging.INFO,
    "library_not_found": logging.WARNING,
}

Gpu = tuple[int, str]
"""Number and UUID."""


class Gpus:
    """The GPUs of a backend that ``make`` makes. ``start`` reads them in threads; ``tick`` often.

    ``interval`` and ``idle``: seconds from one reading to the next, and without a scrape until readings are
    rare; ``retry``: seconds until the next try to open NVML, doubled each time; ``patience``: seconds
    without a readable GPU until ``hopeless``, 0 for never. All times are of the steady clock.
    """

    def __init__(self, make: Callable[[], Backend], interval: float = 1.0, **settings: float) -> None:
        self.usable, self.settled = True, 0.0
        self.must_restart = False
        """Whether only a new process releases the devices, or loads the present library."""
        self.readers: list[Reader] = []
        self._callers: list[Caller] = []
        self._events: deque[Event] = deque()
        self._call, self._called = "", inf
        self.configure(make, interval, **settings)
        self._seconds, self._scraped = interval, time.monotonic()
        self._state, self._since, self._grace = "starting", time.monotonic(), -inf
        self._lock, self._wake, self._closing, self._changed = RLock(), Flag(), Flag(), Flag()
        self.free, self.stuck, self.ready = True, False, False
        """Whether no device is open; none could be released; NVML has answered, be it with an error."""
        self._open_at, self._reopen_at = 0.0, inf
        self._pause = self._retry
        self._asked, self._span = inf, 0.0
        self._outdated = self._mig_seen = self._ever_well = False
        self._hopeless_since: float | None = None
        self._system, self._collected = "", 0.0
        self._reinits, self._most = 0, 0
        self._errors: Counter[tuple[str, str]] = Counter()
        self._numbers: dict[str, int] = {}
        self._xids: Counter[tuple[str, int]] = Counter()
        self._xid_times: dict[tuple[str, int], float] = {}
        self._logged_state = self._state
        self._logged: dict[Gpu, str] = {}

    def configure(
        self,
        make: Callable[[], Backend],
        interval: float,
        *,
        idle: float = 60.0,
        expected: float = 0,
        retry: float = 2.0,
        patience: float = 0,
    ) -> None:
        """Use these settings from now on; the GPUs are read with them once NVML was reopened."""
        self._make, self._usual, self._idle = make, interval, idle
        self._expected, self._retry, self._patience = int(expected), retry, patience
        self._outdated = bool(self.readers)

    # What the page says

    def page(self, now: float) -> bytes:
        """The whole page."""
        reason, cards = self._learn(now)
        chunks: dict[str, list[str]] = {}
        if reason == OK:
            reports = [reader.current(now) for reader in self.readers]
            for text in (report.lines for report in reports):
                for metric, line in text.items():
                    chunks.setdefault(metric, []).append(line)
            chunks["gpu_driver_info"] = [self._system]
            for metric, samples in self._own(reports):
                chunks[metric] = [lines(metric, "", samples)]
        texts = {metric: "".join(chunk) for metric, chunk in chunks.items()}
        known = [family for family in families.GPU_FAMILIES if texts.get(family.name)]
        parts = [header(family) + texts[family.name] for family in known]
        own = [*self._samples(reason, cards, now), *process_metrics()]
        parts += [header(family) + lines(family.name, "", rows) for family, rows in own if rows]
        return "".join(parts).encode()

    def _own(self, reports: Iterable[Report]) -> Iterator[tuple[str, list[Sample]]]:
        errors, seconds = self._errors.copy(), dict[str, float]()
        for reader in self.readers:
            errors.update(dict(reader.errors))
        for report in reports:
            seconds.update({tier: max(took, seconds.get(tier, 0)) for tier, took in report.seconds.items()})
        yield (
            "gpu_exporter_collect_errors_total",
            [({"call": call, "code": code}, count) for (call, code), count in errors.items()],
        )
        yield ("gpu_exporter_collect_duration_seconds", [({"tier": t}, s) for t, s in seconds.items()])

    def _samples(
        self, reason: str, cards: dict[Gpu, str], now: float
    ) -> Iterator[tuple[Family, list[Sample]]]:
        tried = reason != RELEASED
        present = {uuid for _, uuid in cards}
        lost = {(number, uuid): "lost" for uuid, number in self._numbers.items() if uuid not in present}
        reasons = {gpu: why if reason == OK else reason for gpu, why in {**cards, **lost}.items()}
        yield families.DEVICES, [({}, len(cards))] if tried else []
        yield families.EXPECTED, [({}, self._expected or self._most)]
        up: list[Sample] = [
            ({"gpu": str(n), "uuid": uuid, "reason": why}, why == OK) for (n, uuid), why in reasons.items()
        ]
        yield families.UP, up if tried else []
        counts = Counter({(uuid, xid): 0 for uuid in self._numbers for xid in CRITICAL_XIDS})
        counts.update(self._xids)
        yield families.XIDS, [(self._xid(*key), count) for key, count in counts.items()]
        yield (families.XID_TIME, [(self._xid(*key), at) for key, at in self._xid_times.items()])
        yield families.BUILD, [({"version": __version__}, 1)]
        yield families.NVML_UP, [({"reason": reason}, reason == OK)]
        yield families.COLLECTED, [({}, self._collected)] if self._collected else []
        yield families.HUNG, [(labels, 1) for labels in self._hung(now)]
        yield families.REINITS, [({}, self._reinits)]
        yield families.SETTINGS, [({}, self.usable)]
        yield families.SETTINGS_AT, [({}, self.settled)] if self.settled else []

    def _hung(self, now: float) -> Iterator[dict[str, str]]:
        if now > self._called + STALE_INTERVALS * self._seconds:
            yield {"gpu": "", "uuid": "", "call": self._call}
        for caller in self._callers:
            if call := caller.hung(now):
                yield {"gpu": caller.number, "uuid": caller.uuid, "call": call}

    def _xid(self, uuid: str, xid: int) -> dict[str, str]:
        number = self._numbers.get(uuid)
        return {"gpu": "" if number is None else str(number), "uuid": uuid, "xid": str(xid)}

    def _learn(self, now: float) -> tuple[str, dict[Gpu, str]]:
        """Why NVML cannot be relied on, and the reason of each GPU that is listed; remembers both."""
        self.count(self._events.popleft() for _ in range(len(self._events)))
        self._collected = max([self._collected, *(reader.report.wall for reader in self.readers)])
        reason, readers = self._reason(now), self.readers
        if reason != OK:
            return reason, {}
        listed = [(int(reader.number), reader.uuid, reader.current(now).reason) for reader in readers]
        present = {uuid for _, uuid, _ in listed}
        # One that cannot be asked for its UUID is taken for the one that had its number.
        missing = {number: uuid for uuid, number in self._numbers.items() if uuid not in present}
        # Some drivers call a lost GPU unknown. All at once are not lost: their devices were taken from us.
        words = {} if all(why == UNKNOWN for *_, why in listed) else {UNKNOWN: "lost"}
        cards = {(n, uuid or missing.get(n, "")): words.get(why, why) for n, uuid, why in listed}
        self._numbers |= {uuid: number for number, uuid in cards if uuid}
        self._most = max(self._most, len(cards))
        return reason, cards

    def _reason(self, now: float) -> str:
        if self._state == OK and (down := _down(self.readers)):
            return down
        if self._state != "starting":
            return self._state
        if now <= self._grace:  # NVML is reopened: what was read is not stale yet
            return OK
        return "timeout" if now - self._since > OPENING_SECONDS else "starting"

    def count(self, events: Iterable[Event]) -> None:
        """Count Xid errors."""
        for uuid, xid, at in events:
            self._xids[uuid, xid] += 1
            self._xid_times[uuid, xid] = at

    # What is done, in the thread that also serves the page: it calls no driver

    def scraped(self, now: float) -> None:
        """The page was requested."""
        self._scraped = now

    def tick(self, now: float) -> None:
        """Do what is due."""
        idle = now - self._scraped > self._idle
        before = self._seconds
        self._seconds = max(self._usual, IDLE_INTERVAL_SECONDS) if idle else self._usual
        if before != self._seconds:
            for reader in self.readers:
                reader.pace(before, now)
        reason, cards = self._learn(now)
        self._log(reason, cards)
        if self._state == RELEASED and not self.free and now > self._asked + RELEASE_SECONDS:
            self._give_up()
        with self._lock:
            if self._state == OK and not self._closing.is_set():
                self._repair(cards, now)

    def _repair(self, cards: dict[Gpu, str], now: float) -> None:
        """Have NVML reopened where that may help."""
        if down := _down(self.readers):
            self._fail(down, now)
            self._closing.set()
            return
        working = sum(why == OK for why in cards.values())
        if working >= max(self._most, self._expected, 1):
            self._pause, self._ever_well = self._retry, True
            self._reopen_at = now + self._pause
        else:  # reopening NVML helps no GPU that is only late
            late = sum(why == "timeout" for why in cards.values())
            if working + late >= max(self._most, self._expected, 1):
                self._reopen_at = max(self._reopen_at, now + self._retry)
        # reopening NVML helps a GPU whose MIG layout changed, even if it did not help another
        changed = MIG_CHANGED in cards.values()
        due = now >= self._reopen_at or self._outdated or (changed and not self._mig_seen)
        self._mig_seen = self._mig_seen and changed
        if due and not any(self._hung(now)):
            self._mig_seen = changed
            self._postpone(now, 10 * MOST_RETRIES if working else MOST_RETRIES)
            self._open_at = now
            self._closing.set()

    def _fail(self, reason: str, now: float) -> None:
        with self._lock:
            if self._state != RELEASED:
                self._state, self.readers = reason, []
                self._open_at = now + self._pause
                self._postpone(now, MOST_RETRIES)

    def _postpone(self, now: float, most: int) -> None:
        self._reopen_at = now + self._pause
        self._pause = min(2 * self._pause, most * self._retry)

    def _log(self, reason: str, cards: dict[Gpu, str]) -> None:
        """Log when the driver or a GPU appears or disappears; all GPUs count as working at first."""
        if reason != self._logged_state:
            level = _CALM.get(reason, logging.ERROR)
            logger.log(level, "NVML %s: %s", reason, NVML_REASONS.get(reason, "a driver error."))
            self._logged_state = reason
        for (number, uuid), why in cards.items():
            if why != self._logged.get((number, uuid), OK):
                level = logging.INFO if why == OK else logging.ERROR
                logger.log(level, "GPU %s (%s): %s", number, uuid or "of unknown UUID", why)
                self._logged[number, uuid] = why

    def hopeless(self, now: float) -> str:
        """Why no GPU could be read for ``patience``, though they could be before; empty if that is not so.

        What could not be read from the start is no reason: a restart did not fix it, nor would the next.
        """
        if not self._thread.is_alive():
            return "a fault of the exporter, above"
        reason, cards = self._learn(now)
        whys = set(cards.values())
        trouble = whys.pop() if len(whys) == 1 else reason
        self._ever_well = self._ever_well or OK in cards.values()
        if not self._ever_well or trouble not in CURABLE:
            # while NVML is reopened nothing is known
            self._hopeless_since = self._hopeless_since if trouble == "starting" else None
            return ""
        since = self._hopeless_since = now if self._hopeless_since is None else self._hopeless_since
        return trouble if 0 < self._patience <= now - since else ""

    def release(self, seconds: float, now: float) -> None:
        """Release the devices, and open them again after so long; 0 takes them back."""
        with self._lock:
            if seconds:
                self._state, self._asked, self._span, self.stuck = (RELEASED, now, seconds, False)
                self._closing.set()
            if self._state == RELEASED:
                self._pause, self._open_at = self._retry, now + seconds
                self._wake.set()

    def _give_up(self) -> None:
        """A call hangs while the devices are to be released: only the end of the process releases them."""
        self._asked = inf
        if not _held():
            self.must_restart = True
            return
        with self._lock:  # not even that: go on
            self.stuck, self._state, self._open_at = (True, OK if self.readers else "starting", 0.0)
            self._closing.clear()

    def kept(self) -> dict[str, Any]:
        """What another process that takes over has to know."""
        return {
            "numbers": self._numbers,
            "most": self._most,
            "reinits": self._reinits + 1,
            "xids": [(*key, count, self._xid_times.get(key, 0.0)) for key, count in self._xids.items()],
            "released": self._span if self._state == RELEASED else 0.0,
            "ever_well": self._ever_well,
        }

    def take_over(self, kept: dict[str, Any]) -> None:
        """Go on where another process ended."""
        self._numbers, self._most, self._reinits = (kept["numbers"], kept["most"], kept["reinits"])
        self._ever_well = kept["ever_well"]
        for uuid, xid, count, at in kept["xids"]:
            self._xids[uuid, xid], self._xid_times[uuid, xid] = count, at
        if kept["released"]:
            self._state, self._open_at = RELEASED, time.monotonic() + kept["released"]

    def stop(self) -> bool:
        """Release the devices for good. Returns whether no call hangs any more."""
        self.release(inf, time.monotonic())
        until = time.monotonic() + RELEASE_SECONDS
        while not self.free and time.monotonic() < until:
            time.sleep(0.01)
        return self.free

    # What may hang, in a thread of its own

    def start(self) -> None:
        """Open NVML and read from now on."""
        self._thread = Thread(target=self._run, name="nvml", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            pause = self._open_at - time.monotonic()
            if pause > 0:
                self._wake.wait(min(pause, OPENING_SECONDS))
                self._wake.clear()
                continue
            with self._lock:
                if self._open_at > time.monotonic():  # released just now
                    continue
                if self._state == RELEASED:
                    self._state, self._since, self._grace = "starting", time.monotonic(), -inf
                    self._reinits += 1
                self.free, self._asked = False, inf
                self._closing.clear()
            self._outdated = False
            backend = self._make()
            self._call, self._called = "Init", time.monotonic()
            try:
                self._read(self.open(backend))
            except BackendError as problem:
                self._fail(problem.code, time.monotonic())
                self.must_restart = self.must_restart or backend.outdated()
                self._closing.set()
            self._called = inf
            self.ready = True
            while not self.free:
                self._closing.wait()
                self._close(backend)
            gc.collect()  # what read the GPUs refers to itself, and weighs as much as what will read them

    def open(self, backend: Backend) -> list[Reader]:
        """What reads each GPU. Raises ``BackendError``."""
        count = backend.open()
        self._system = "".join(
            lines(each.metric, "", [(each.labels, each.value)]) for each in backend.system()
        )
        readers = [
            Reader(number, backend, lambda: self._seconds, self._changed.set) for number in range(count)
        ]
        # the listener first: when NVML is closed, it takes longest to stop
        self._callers = [Listener(backend, self._events, lambda: self._seconds), *readers]
        return readers

    def _read(self, readers: list[Reader]) -> None:
        """Start reading, and show the GPUs once each had time to answer."""
        until = time.monotonic() + min(max(FIRST_SECONDS, STALE_INTERVALS * self._usual), OPENING_SECONDS)
        self._called = inf
        for caller in self._callers:
            caller.start()
            self._changed.wait(HEAD_START_SECONDS)
            self._changed.clear()
        while not all(each.report is not SILENT for each in readers) and time.monotonic() < until:
            self._changed.wait(HEAD_START_SECONDS)
            self._changed.clear()
        if down := _down(readers):
            raise BackendError(down)
        self.show(readers)

    def show(self, readers: list[Reader]) -> None:
        """Have the page show what these read."""
        with self._lock:
            self.readers = readers
            self._state = RELEASED if self._state == RELEASED else OK
            self._reopen_at = time.monotonic() + self._pause

    def _close(self, backend: Backend) -> None:
        """Release the devices, unless a call hangs: closing NVML beneath it is not safe."""
        until = time.monotonic() + END_SECONDS
        held = [
            each for each in self._callers if each.lock.acquire(timeout=max(0.0, until - time.monotonic()))
        ]
        with self._lock:
            if len(held) < len(self._callers) and self._state == OK:
                self._closing.clear()  # go on, and try again later
                self._mig_seen = False
        if len(held) == len(self._callers):
            self._call, self._called = "Shutdown", time.monotonic()
            for each in self._callers:
                each.end()
                if isinstance(each, Reader):
                    self._errors.update(each.errors)
                    each.errors.clear()
            backend.close()
            self._called, self._callers = inf, []
            with self._lock:
                self._reinits += self._state != RELEASED
                if self._state == OK:
                    self._state, self._since = "starting", time.monotonic()
                    self._grace = self._since + STALE_INTERVALS * self._seconds
                self.free = True
        for each in held:
            each.lock.release()


def _down(readers: Iterable[Reader]) -> str | None:
    """Why only reopening NVML helps."""
    return next((reader.down for reader in readers if reader.down), None)


def _held() -> bool:
    """Whether the kernel holds a thread of this process so that not even SIGKILL would end it."""
    folder = "/proc/self/task"
    for task in os.listdir(folder):  # noqa: PTH208
        with suppress(OSError), open(f"{folder}/{task}/stat") as stat:  # noqa: PTH123  (pathlib weighs 1 MB)
            if stat.read().rpartition(")")[2].split()[0] == "D":
                return True
    return False
