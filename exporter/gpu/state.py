"""What is known of this machine's GPUs: what the worker last read, and what must outlive a worker."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
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
)
from exporter.http.exposition import Family, Sample, header, lines, process_metrics

logger = logging.getLogger(__name__)

Gpu = tuple[int, str]
"""Number and UUID."""


class State:
    """Learns from the workers' messages, one each ``interval`` seconds, and gives the page."""

    def __init__(self, interval: float, expected: int = 0) -> None:
        self.expected = expected
        self.silence: str | None = None
        self.restarts = Counter(died=0, hung=0)
        self.reinits = 0
        self.usable = True
        self.settled = 0.0
        self._interval = interval
        self._nvml = "starting"
        self._heard: float | None = None
        self._until = 0.0
        self._collected = 0.0
        self._text = ""
        self._cards: dict[Gpu, str] = {}
        self._numbers: dict[str, int] = {}
        self._most = 0
        self._xids: Counter[tuple[str, int]] = Counter()
        self._xid_times: dict[tuple[str, int], float] = {}

    def update(self, message: dict[str, Any], now: float, wall: float) -> None:
        """Learn what a worker read. ``now`` of the steady clock, ``wall`` since 1970."""
        self._nvml, self._text, self._heard = message["nvml"], message["text"], now
        self._until = now + STALE_INTERVALS * self._interval
        self.silence = None
        self._collected = wall if self._nvml == OK else self._collected
        self._cards = self._named(message["cards"])
        self._numbers |= {uuid: number for number, uuid in self._cards if uuid}
        self._most = max(self._most, len(self._cards))

    def await_each(self, interval: float, now: float) -> None:
        """A message is due each so many seconds from now on; ``now`` of the steady clock."""
        if self._heard is not None and now <= self._until:
            slower = self._heard + STALE_INTERVALS * max(interval, self._interval)
            self._until = min(slower, now + STALE_INTERVALS * interval)
        self._interval = interval

    def release(self) -> None:
        """No worker sends messages until ``resume``, and nothing is known meanwhile."""
        self._nvml, self._text, self.silence = RELEASED, "", None

    def resume(self) -> None:
        """A worker will send messages again."""
        self._nvml = "starting"
        self.reinits += 1

    @property
    def released(self) -> bool:
        """Whether the devices are released."""
        return self._nvml == RELEASED

    def count(self, events: Iterable[tuple[str, int, float]]) -> None:
        """Count Xid errors: UUID, number, and seconds since 1970."""
        for uuid, xid, at in events:
            self._xids[uuid, xid] += 1
            self._xid_times[uuid, xid] = at

    @property
    def ready(self) -> bool:
        """Whether a worker ever sent a message."""
        return self._heard is not None

    @property
    def working(self) -> int:
        """GPUs that could be read, as last heard."""
        return sum(reason == OK for reason in self._cards.values())

    @property
    def repartitioned(self) -> bool:
        """Whether a GPU only has to be read by a new worker, as last heard."""
        return MIG_CHANGED in self._cards.values()

    @property
    def well(self) -> bool:
        """Whether every GPU that was ever seen could be read, and there was one, as last heard."""
        return self._nvml == OK and self.working >= max(self._most, self.expected, 1)

    def _named(self, cards: Iterable[tuple[int, str, str]]) -> dict[Gpu, str]:
        """Reasons by GPU. One that cannot be asked for its UUID is taken for the one that had its number.

        Some drivers call a lost GPU unknown. All at once are not lost: their devices were taken from us.
        """
        listed = list(cards)
        present = {uuid for _, uuid, _ in listed}
        missing = {number: uuid for uuid, number in self._numbers.items() if uuid not in present}
        words = {} if all(reason == UNKNOWN for *_, reason in listed) else {UNKNOWN: "lost"}
        return {
            (number, uuid or missing.get(number, "")): words.get(reason, reason)
            for number, uuid, reason in listed
        }

    def page(self, now: float) -> bytes:
        """The whole page. ``now`` in seconds of the steady clock."""
        reason = self.reason(now)
        text = self._text if reason == OK else ""
        samples = [*self._samples(reason), *process_metrics()]
        own = "".join(header(family) + lines(family.name, "", rows) for family, rows in samples if rows)
        return (text + own).encode()

    def reason(self, now: float) -> str:
        """Why NVML cannot be relied on, ``ok`` if it can. ``now`` in seconds of the steady clock."""
        if self._nvml == OK and now <= self._until:
            return OK
        return self.silence or ("timeout" if self._nvml == OK else self._nvml)

    def trouble(self, now: float) -> str:
        """Why no GPU can be read, ``ok`` if one can, or if it is not the same for all."""
        reason = self.reason(now)
        reasons = set(self._cards.values())
        return reasons.pop() if reason == OK and len(reasons) == 1 else reason

    def _samples(self, reason: str) -> Iterator[tuple[Family, list[Sample]]]:
        tried = reason != RELEASED
        yield families.DEVICES, [({}, len(self._cards) if reason == OK else 0)] if tried else []
        yield families.EXPECTED, [({}, self.expected or self._most)]
        up: list[Sample] = []
        for (number, uuid), why in self.gpus.items():
            now = why if reason == OK else reason
            up.append(({"gpu": str(number), "uuid": uuid, "reason": now}, now == OK))
        yield families.UP, up if tried else []
        counts = Counter({(uuid, xid): 0 for uuid in self._numbers for xid in CRITICAL_XIDS})
        counts.update(self._xids)
        yield families.XIDS, [(self._xid(*key), count) for key, count in counts.items()]
        yield families.XID_TIME, [(self._xid(*key), at) for key, at in self._xid_times.items()]
        yield families.BUILD, [({"version": __version__}, 1)]
        yield families.NVML_UP, [({"reason": reason}, reason == OK)]
        yield families.COLLECTED, [({}, self._collected)] if self._collected else []
        yield families.RESTARTS, [({"reason": why}, count) for why, count in self.restarts.items()]
        yield families.REINITS, [({}, self.reinits)]
        yield families.SETTINGS, [({}, self.usable)]
        yield families.SETTINGS_AT, [({}, self.settled)] if self.settled else []

    @property
    def gpus(self) -> dict[Gpu, str]:
        """Why each GPU that was ever seen is up or down: one that the driver no longer lists is lost."""
        present = {uuid for _, uuid in self._cards}
        lost = {(number, uuid): "lost" for uuid, number in self._numbers.items() if uuid not in present}
        return {**self._cards, **lost}

    def _xid(self, uuid: str, xid: int) -> dict[str, str]:
        number = self._numbers.get(uuid)
        return {"gpu": "" if number is None else str(number), "uuid": uuid, "xid": str(xid)}


_CALM = {
    OK: logging.INFO,
    "starting": logging.INFO,
    RELEASED: logging.INFO,
    "library_not_found": logging.WARNING,  # a machine without GPUs
}


class ChangeLog:
    """Logs when the driver or a GPU appears or disappears; all GPUs count as working at first."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._nvml = state.reason(now)
        self._gpus: dict[Gpu, str] = {}

    def tick(self, now: float) -> None:
        """Log what is new. ``now`` in seconds of the steady clock."""
        reason = self._state.reason(now)
        if reason != self._nvml:
            level = _CALM.get(reason, logging.ERROR)
            logger.log(level, "NVML %s: %s", reason, NVML_REASONS.get(reason, "a driver error."))
            self._nvml = reason
        for gpu, why in (self._state.gpus if reason == OK else {}).items():
            if why != self._gpus.get(gpu, OK):
                number, uuid = gpu
                level = logging.INFO if why == OK else logging.ERROR
                logger.log(level, "GPU %s (%s): %s", number, uuid or "of unknown UUID", why)
                self._gpus[gpu] = why
