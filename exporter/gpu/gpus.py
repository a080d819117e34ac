"""All GPUs of this machine: NVML opened and closed, what is known of each GPU, and the page."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from threading import Event as Flag
from threading import RLock, Thread
from typing import Any

from exporter import __version__
from exporter.gpu.backend import (
    CRITICAL_XIDS,
    MIG_CHANGED,
    NVML_REASONS,
    OK,
    RELEASED,
    UNKNOWN,
    Backend,
    BackendError,
    Event,
    Settings,
)
from exporter.gpu.reader import EVENT_SECONDS, SILENT, STALE_INTERVALS, Caller, Listener, Reader
from exporter.gpu.table import FAMILIES
from exporter.http.exposition import Sample, by_label, header, lines, process_metrics

logger = logging.getLogger(__name__)

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

Gpu = tuple[int, str]
"""Number and UUID."""


class Gpus:
    """The GPUs of a backend. ``start`` reads them in threads; call ``tick`` often. Times are steady."""

    def __init__(self, make: Callable[[Settings], Backend], settings: Settings) -> None:
        self.settings, self.usable, self.settled = settings, True, time.time()
        """How it reads from now on, whether newer settings were valid, and since when since 1970."""
        self._make, self.must_restart = make, False
        """Whether only a new process releases the devices, or loads the present library."""
        self.free, self.stuck, self.ready = True, False, False
        """Whether no device is open; none could be released; NVML has answered, be it with an error."""
        self.readers: list[Reader] = []
        self.xids: dict[tuple[str, int], tuple[int, float]] = {}
        """How many Xid errors there were and when the last, by UUID and number."""
        self._callers: list[Caller] = []
        self._events: deque[Event] = deque()
        self._call, self._called = "", inf
        self._state, self._since, self._grace = "starting", time.monotonic(), -inf
        self._lock, self._wake, self._closing, self._changed = RLock(), Flag(), Flag(), Flag()
        self._open_at, self._reopen_at, self._pause = 0.0, inf, settings.retry
        self._asked, self._span = inf, 0.0
        self._must_reopen = self._mig_seen = self._ever_well = False
        self._hopeless_since: float | None = None
        self._versions: dict[str, str] = {}
        self._loaded: tuple[str, int] | None = None
        self._collected = 0.0
        self._reinits, self._most = 0, 0
        self._errors: Counter[tuple[str, str]] = Counter()
        self._numbers: dict[str, int] = {}
        self._logged_state = self._state
        self._logged: dict[Gpu, str] = {}

    def configure(self, settings: Settings) -> None:
        """Use these settings from now on; the GPUs are read with them once NVML was reopened."""
        self.settings, self.settled, self._must_reopen = settings, time.time(), bool(self.readers)

    # What the page says

    def page(self, now: float) -> bytes:
        """The whole page."""
        reason, cards = self._learn(now)
        text: dict[str, str] = {}
        if reason == OK:
            for reader in self.readers:
                for metric, line in reader.current(now).lines.items():
                    text[metric] = text.get(metric, "") + line
        for metric, samples in self._samples(reason, cards, now).items():
            text[metric] = lines(metric, "", samples)
        known = [header(family) + text[name] for name, family in FAMILIES.items() if text.get(name)]
        own = [header(family) + lines(family.name, "", samples) for family, samples in process_metrics()]
        return "".join(known + own).encode()

    def _samples(self, reason: str, cards: dict[Gpu, str], now: float) -> dict[str, list[Sample]]:
        """What is known of them all, and of the exporter."""
        present = {uuid for _, uuid in cards}
        lost = {(number, uuid): "lost" for uuid, number in self._numbers.items() if uuid not in present}
        up = {gpu: why if reason == OK else reason for gpu, why in {**cards, **lost}.items()}
        xids = {(uuid, xid): (0, 0.0) for uuid in self._numbers for xid in CRITICAL_XIDS} | self.xids
        samples: dict[str, list[Sample]] = {
            "gpu_devices": [({}, len(cards))],
            "gpu_devices_expected": [({}, self.settings.expected or self._most)],
            "gpu_up": [
                ({"gpu": str(number), "uuid": uuid, "reason": why}, why == OK)
                for (number, uuid), why in up.items()
            ],
            "gpu_xid_errors_total": [(self._of_xid(*key), count) for key, (count, _) in xids.items()],
            "gpu_xid_last_timestamp_seconds": [
                (self._of_xid(*key), at) for key, (_, at) in self.xids.items()
            ],
            "gpu_exporter_build_info": [({"version": __version__}, 1)],
            "gpu_exporter_nvml_up": [({"reason": reason}, reason == OK)],
            "gpu_exporter_last_collect_timestamp_seconds": [({}, self._collected)] if self._collected else [],
            "gpu_exporter_call_hung": [(labels, 1) for labels in self._hung(now)],
            "gpu_exporter_nvml_reinit_total": [({}, self._reinits)],
            "gpu_exporter_config_last_reload_successful": [({}, self.usable)],
            "gpu_exporter_config_last_reload_success_timestamp_seconds": [({}, self.settled)],
        }
        if reason == RELEASED:
            del samples["gpu_devices"], samples["gpu_up"]
        if reason == OK:
            errors, seconds = self._errors.copy(), dict[str, float]()
            for reader in self.readers:
                errors.update(dict(reader.errors))
                for tier, took in reader.report.seconds.items():
                    seconds[tier] = max(took, seconds.get(tier, 0))
            failed = [({"call": call, "code": code}, float(count)) for (call, code), count in errors.items()]
            samples["gpu_driver_info"] = [(self._versions, 1)]
            samples["gpu_exporter_collect_errors_total"] = [*failed]
            samples["gpu_exporter_collect_duration_seconds"] = by_label("tier", seconds)
        return samples

    def _of_xid(self, uuid: str, xid: int) -> dict[str, str]:
        return {"gpu": str(self._numbers.get(uuid, "")), "uuid": uuid, "xid": str(xid)}

    def _hung(self, now: float) -> list[dict[str, str]]:
        """The calls that do not return."""
        found = [
            {"gpu": caller.number, "uuid": caller.uuid, "call": call}
            for caller in self._callers
            if (call := caller.hung(now))
        ]
        if now > self._called + STALE_INTERVALS * self.settings.interval:
            found.insert(0, {"gpu": "", "uuid": "", "call": self._call})
        return found

    def _learn(self, now: float) -> tuple[str, dict[Gpu, str]]:
        """Why NVML cannot be relied on, and the reason of each GPU that is listed; remembers both."""
        if self._events:
            self.count(self._events.popleft() for _ in range(len(self._events)))
        readers, reason = self.readers, self._state
        self._collected = max([self._collected, *(reader.report.wall for reader in readers)])
        if reason == "starting":
            if now <= self._grace:  # NVML is reopened: what was read is not stale yet
                reason = OK
            elif now - self._since > OPENING_SECONDS:
                reason = "timeout"
        elif reason == OK:
            reason = _down(readers) or OK
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
        return OK, cards

    def count(self, events: Iterable[Event]) -> None:
        """Count Xid errors."""
        for uuid, xid, at in events:
            self.xids[uuid, xid] = self.xids.get((uuid, xid), (0, 0.0))[0] + 1, at

    # What is done while no page is made: it calls no driver

    def tick(self, now: float) -> str:
        """Do what is due. Returns why only another process may read GPUs again; empty if that is not so."""
        reason, cards = self._learn(now)
        self._log(reason, cards)
        if self._state == RELEASED and not self.free and now > self._asked + RELEASE_SECONDS:
            self._give_up()
        with self._lock:
            if self._state == OK and not self._closing.is_set():
                self._repair(cards, now)
        return self._hopeless(reason, cards, now)

    def _repair(self, cards: dict[Gpu, str], now: float) -> None:
        """Have NVML reopened where that may help."""
        if down := _down(self.readers):
            self._fail(down, now)
            self._closing.set()
            return
        wanted = max(self._most, self.settings.expected, 1)
        working = sum(why == OK for why in cards.values())
        late = sum(why == "timeout" for why in cards.values())
        if working >= wanted:
            self._pause, self._ever_well = self.settings.retry, True
            self._reopen_at = now + self._pause
        elif working + late >= wanted:  # reopening NVML helps no GPU that is only late
            self._reopen_at = max(self._reopen_at, now + self.settings.retry)
        # reopening NVML helps a GPU whose MIG layout changed, even if it did not help another
        changed = MIG_CHANGED in cards.values()
        self._must_reopen = self._must_reopen or (changed and not self._mig_seen)
        self._mig_seen = changed
        if (self._must_reopen or now >= self._reopen_at) and not self._hung(now):
            self._must_reopen = False
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
        self._pause = min(2 * self._pause, most * self.settings.retry)

    def _log(self, reason: str, cards: dict[Gpu, str]) -> None:
        """Log when the driver or a GPU appears or disappears; all GPUs count as working at first."""
        if reason != self._logged_state:
            calm = logging.WARNING if reason == "library_not_found" else logging.INFO
            level = calm if reason in (OK, "starting", RELEASED, "library_not_found") else logging.ERROR
            logger.log(level, "NVML %s: %s", reason, NVML_REASONS.get(reason, "a driver error."))
            self._logged_state = reason
        for (number, uuid), why in cards.items():
            if why != self._logged.get((number, uuid), OK):
                level = logging.INFO if why == OK else logging.ERROR
                logger.log(level, "GPU %s (%s): %s", number, uuid or "of unknown UUID", why)
                self._logged[number, uuid] = why

    def _hopeless(self, reason: str, cards: dict[Gpu, str], now: float) -> str:
        """Why no GPU could be read for ``restart_after``, though one could before; empty if that is not so.

        What could not be read from the start is no reason: a restart did not fix it, nor would the next.
        """
        if not self._thread.is_alive():
            return "a fault of the exporter, above"
        whys = set(cards.values())
        self._ever_well = self._ever_well or OK in whys
        trouble = whys.pop() if len(whys) == 1 else reason
        if not self._ever_well or trouble not in CURABLE:
            if trouble != "starting":  # while NVML is reopened nothing is known
                self._hopeless_since = None
            return ""
        since = self._hopeless_since = now if self._hopeless_since is None else self._hopeless_since
        return trouble if 0 < self.settings.restart_after <= now - since else ""

    def release(self, seconds: float, now: float) -> None:
        """Release the devices, and open them again after so long; 0 takes them back."""
        with self._lock:
            if seconds:
                self._state, self._asked, self._span, self.stuck = RELEASED, now, seconds, False
                self._closing.set()
            if self._state == RELEASED:
                self._pause, self._open_at = self.settings.retry, now + seconds
                self._wake.set()

    def _give_up(self) -> None:
        """A call hangs while the devices are to be released: only the end of the process releases them."""
        self._asked = inf
        if not _held():
            self.must_restart = True
            return
        with self._lock:  # not even that: go on
            self.stuck, self._state, self._open_at = True, OK if self.readers else "starting", 0.0
            self._closing.clear()

    def kept(self) -> dict[str, Any]:
        """What another process that takes over has to know."""
        return {
            "numbers": self._numbers,
            "most": self._most,
            "reinits": self._reinits + 1,
            "xids": [(*key, *value) for key, value in self.xids.items()],
            "released": self._span if self._state == RELEASED else 0.0,
            "ever_well": self._ever_well,
        }

    def take_over(self, kept: dict[str, Any]) -> None:
        """Go on where another process ended."""
        self._numbers, self._most, self._reinits = kept["numbers"], kept["most"], kept["reinits"]
        self._ever_well = kept["ever_well"]
        for uuid, xid, count, at in kept["xids"]:
            self.xids[uuid, xid] = count, at
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
            backend = self._make(self.settings)
            self._call, self._called = "Init", time.monotonic()
            try:
                self._read(self.open(backend))
            except BackendError as problem:
                self._fail(problem.code, time.monotonic())
                self.must_restart = self.must_restart or self._loaded != _library()
                self._closing.set()
            self._called, self.ready = inf, True
            while not self.free:
                self._closing.wait()
                self._close(backend)
            gc.collect()  # what read the GPUs refers to itself, and weighs as much as what will read them

    def open(self, backend: Backend) -> list[Reader]:
        """What reads each GPU. Raises ``BackendError``."""
        try:
            count, self._versions = backend.open()
        finally:
            self._loaded = self._loaded or _library()  # a process never loads another
        interval = self.settings.interval
        readers = [Reader(number, backend, interval, self._changed.set) for number in range(count)]
        # the listener first: when NVML is closed, it takes longest to stop
        self._callers = [Listener(backend, interval, self._events), *readers]
        return readers

    def _read(self, readers: list[Reader]) -> None:
        """Start reading, and show the GPUs once each had time to answer."""
        first = max(FIRST_SECONDS, STALE_INTERVALS * self.settings.interval)
        until = time.monotonic() + min(first, OPENING_SECONDS)
        self._called = inf
        for caller in self._callers:
            caller.start()
            self._changed.wait(HEAD_START_SECONDS)
            self._changed.clear()
        while any(each.report is SILENT for each in readers) and time.monotonic() < until:
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
        if len(held) == len(self._callers):
            self._call, self._called = "Shutdown", time.monotonic()
            for each in self._callers:
                each.ended.set()
                if isinstance(each, Reader):
                    self._errors.update(each.errors)
                    each.errors.clear()
            backend.close()
            self._called, self._callers = inf, []
            with self._lock:
                self._reinits += self._state != RELEASED
                if self._state == OK:
                    self._state, self._since = "starting", time.monotonic()
                    self._grace = self._since + STALE_INTERVALS * self.settings.interval
                self.free = True
        else:
            with self._lock:
                if self._state == OK:
                    self._closing.clear()  # go on, and try again later
                    self._must_reopen = True
        for each in held:
            each.lock.release()


def _down(readers: Iterable[Reader]) -> str:
    """Why only reopening NVML helps."""
    return next((reader.down for reader in readers if reader.down), "")


def _library() -> tuple[str, int] | None:
    """Where NVIDIA's library was when this process loaded it, and which file is there now, if any."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123  (pathlib weighs 1 MB)
        for line in maps:
            if "libnvidia-ml.so" in line:
                name = line.split(maxsplit=5)[5].removesuffix("\n").removesuffix(" (deleted)")
                with suppress(OSError):
                    return name, os.stat(name).st_ino  # noqa: PTH116
                return name, 0
    return None


def _held() -> bool:
    """Whether the kernel holds a thread of this process so that not even SIGKILL would end it."""
    folder = "/proc/self/task"
    for task in os.listdir(folder):  # noqa: PTH208
        with suppress(OSError), open(f"{folder}/{task}/stat") as stat:  # noqa: PTH123  (pathlib weighs 1 MB)
            if stat.read().rpartition(")")[2].split()[0] == "D":
                return True
    return False
