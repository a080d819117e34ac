"""What is known of this machine's GPUs: what the worker last read, and what must outlive a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from exporter import __version__, process
from exporter.exposition import Family, Sample, header, lines
from exporter.gpu import contract, families
from exporter.gpu.backend import OK
from exporter.gpu.dcgm import names as dcgm

Gpu = tuple[int, str]
"""Number and UUID."""


class Box:
    """Takes the workers' messages and gives the page. ``interval`` in seconds.

    ``silence`` says why no worker speaks, where that is known.
    """

    def __init__(self, interval: float) -> None:
        self.silence: str | None = None
        self.restarts = Counter(died=0, hung=0)
        self.reinits = 0
        self._interval = interval
        self._nvml = "starting"
        self._heard: float | None = None
        self._collected = 0.0
        self._text = ""
        self._cards: dict[Gpu, str] = {}
        self._numbers: dict[str, int] = {}
        self._expected = 0
        self._xids: Counter[tuple[str, int]] = Counter()
        self._xid_times: dict[tuple[str, int], float] = {}
        self._dcgm: dict[str, dict[str, str]] = {}

    def take(self, message: dict[str, Any], now: float, wall: float) -> None:
        """Learn what a worker read. ``now`` of the steady clock, ``wall`` since 1970."""
        self._nvml, self._text, self._heard = message["nvml"], message["text"], now
        self.silence = None
        self._collected = wall if self._nvml == OK else self._collected
        self._cards = self._named(message["cards"])
        self._numbers |= {uuid: number for number, uuid in self._cards if uuid}
        self._dcgm |= message.get("dcgm", {})
        self._expected = max(self._expected, len(self._cards))

    def count(self, events: Iterable[tuple[str, int, float]]) -> None:
        """Count Xid errors: UUID, number, and seconds since 1970."""
        for uuid, xid, at in events:
            self._xids[uuid, xid] += 1
            self._xid_times[uuid, xid] = at

    @property
    def ready(self) -> bool:
        """Did a worker ever speak?"""
        return self._heard is not None

    @property
    def working(self) -> int:
        """GPUs that could be read, as last heard."""
        return sum(reason == OK for reason in self._cards.values())

    @property
    def well(self) -> bool:
        """Could every GPU be read that was ever seen, and was there one? As last heard."""
        return self._nvml == OK and self.working == max(self._expected, 1)

    def _named(self, cards: Iterable[tuple[int, str, str]]) -> dict[Gpu, str]:
        """Reasons by GPU. One that cannot be asked for its UUID is taken for the one that had its number."""
        told = list(cards)
        present = {uuid for _, uuid, _ in told}
        missing = {number: uuid for uuid, number in self._numbers.items() if uuid not in present}
        return {(number, uuid or missing.get(number, "")): reason for number, uuid, reason in told}

    def page(self, now: float) -> bytes:
        """The whole page. ``now`` in seconds of the steady clock."""
        reason = self.reason(now)
        text = self._text if reason == OK else ""
        samples = [*self._samples(reason), *process.samples()]
        own = "".join(header(family) + lines(family.name, "", rows) for family, rows in samples if rows)
        return (text + own).encode()

    def reason(self, now: float) -> str:
        """Why NVML cannot be relied on, ``ok`` if it can. ``now`` in seconds of the steady clock."""
        age = now - (self._heard or 0.0)
        if self._nvml == OK and age <= contract.STALE_INTERVALS * self._interval:
            return OK
        return self.silence or ("timeout" if self._nvml == OK else self._nvml)

    def _samples(self, reason: str) -> Iterator[tuple[Family, list[Sample]]]:
        yield families.DEVICES, [({}, len(self._cards) if reason == OK else 0)]
        yield families.EXPECTED, [({}, self._expected)]
        yield families.UP, list(self._up(reason))
        yield families.XIDS, [(self._xid(*key), count) for key, count in self._counts()]
        yield families.XID_TIME, [(self._xid(*key), at) for key, at in self._xid_times.items()]
        for family in dcgm.families(dcgm.XID):
            yield family, [(labels, self._last_xid(uuid)) for uuid, labels in self._dcgm.items()]
        yield families.BUILD, [({"version": __version__}, 1)]
        yield families.NVML_UP, [({"reason": reason}, reason == OK)]
        yield families.COLLECTED, [({}, self._collected)] if self._collected else []
        yield families.RESTARTS, [({"reason": why}, count) for why, count in self.restarts.items()]
        yield families.REINITS, [({}, self.reinits)]

    def _up(self, reason: str) -> Iterator[Sample]:
        """Every GPU that was ever seen: one that the driver no longer lists is lost."""
        present = {uuid for _, uuid in self._cards}
        lost = {(number, uuid): "lost" for uuid, number in self._numbers.items() if uuid not in present}
        for (number, uuid), why in {**self._cards, **lost}.items():
            now = why if reason == OK else reason
            yield {"gpu": str(number), "uuid": uuid, "reason": now}, now == OK

    def _counts(self) -> Iterator[tuple[tuple[str, int], int]]:
        """The critical errors of every GPU, and whatever else came."""
        zeros = Counter({(uuid, xid): 0 for uuid in self._numbers for xid in contract.CRITICAL_XIDS})
        zeros.update(self._xids)
        yield from zeros.items()

    def _last_xid(self, uuid: str) -> int:
        """0 if none came."""
        times = {xid: at for (owner, xid), at in self._xid_times.items() if owner == uuid}
        return max(times, key=lambda xid: times[xid], default=0)

    def _xid(self, uuid: str, xid: int) -> dict[str, str]:
        number = self._numbers.get(uuid)
        return {"gpu": "" if number is None else str(number), "uuid": uuid, "xid": str(xid)}
