"""All targets that any source reports: each address once, and whether it is to be served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.runs.discovery.address import MOST, Allowlist
from exporter.runs.discovery.prober import Outcome

METRICS_PATH = "/metrics"

ROLLOUT, RAY, TRAINER = "rollout", "ray", "trainer"
"""Roles: what a server is for. EngineGone reports a lost rollout server, RayNodeLost a part of Ray."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server with a page of metrics, as one source reports it.

    ``address`` is as ``Allowlist`` let it pass. ``labels`` hold ``job`` and ``role``, and ``run`` where it is
    known. ``over``: the source knows that its time is over, so that it leaves once it takes no connection.
    """

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    path: str = METRICS_PATH
    source: str = ""
    over: bool = False


class Source(Protocol):
    """Reports targets; ``name`` is its label in metrics."""

    name: str

    @property
    def read(self) -> float | None:
        """When it last had what it tells in good order, in seconds since the epoch; ``None``: never."""

    def targets(self) -> Iterable[Target]:
        """All targets that it knows of now, from a thread of discovery's own. Raises nothing."""


PROVE_SECONDS = 120.0
"""How long one is served that has never taken a connection: less than EngineGone waits, since an old list
names servers that are long gone."""


OK = 200
REFUSALS = range(300, 500)
"""What a server answers that has no such page, or sends on to another, which Prometheus does not follow.

A busy one may answer anything else, or not in time.
"""


@dataclass(slots=True)
class Entry:
    """A target as all its sources together report it; times in seconds of the steady clock.

    ``since`` is when it was first reported, ``accepted`` when it last took a connection, and ``answers``
    whether it did the last time. ``page``: it has a page of metrics. ``None`` is what no one knows yet.
    """

    address: str
    since: float
    labels: dict[str, str] = field(default_factory=dict)
    path: str = METRICS_PATH
    sources: tuple[str, ...] = ()
    over: bool = False
    accepted: float | None = None
    answers: bool | None = None
    page: bool | None = None

    def tell(self, targets: list[Target]) -> None:
        """Heed what the sources say: of labels the last one counts, of the end who knows the run."""
        self.labels = {name: value for one in targets for name, value in one.labels.items()}
        self.path = next((one.path for one in reversed(targets) if one.path != METRICS_PATH), METRICS_PATH)
        self.sources = tuple(dict.fromkeys(one.source for one in targets))
        self.over = all(one.over for one in [one for one in targets if "run" in one.labels] or targets)

    def is_served(self, now: float, forget_after: float) -> bool:
        """Is Prometheus to read it? A server without a page is alive, and would seem to be lost."""
        if self.page is False:
            return False
        if self.over:
            return bool(self.answers)
        if self.accepted is None:
            return now - self.since < PROVE_SECONDS
        return now - self.accepted < forget_after


class TargetRegistry:
    """The targets by address; ``forget_after`` in seconds."""

    def __init__(self, forget_after: float, gate: Allowlist) -> None:
        self._forget_after, self._gate = forget_after, gate
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def take(self, targets: Iterable[Target], now: float) -> None:
        """Take all that the sources tell now; what none of them reports any more is gone."""
        by_address: dict[str, list[Target]] = {}
        for target in targets:
            by_address.setdefault(target.address, []).append(target)
        for address in self._entries.keys() - by_address.keys():
            del self._entries[address]
        for address, same in by_address.items():
            self._enter(address, same, now)

    def _enter(self, address: str, targets: list[Target], now: float) -> None:
        entry = self._entries.get(address)
        if entry is None:
            if len(self._entries) >= MOST:
                self._gate.note(
                    targets[0].source, "too_many", f"targets beyond the first {MOST} are left out"
                )
                return
            entry = self._entries[address] = Entry(address, now)
        entry.tell(targets)

    def path(self, address: str) -> str:
        """The page that is to be asked for; empty once it is known to be there."""
        entry = self._entries.get(address)
        return entry.path if entry and not entry.page else ""

    def tried(self, outcome: Outcome, now: float) -> None:
        """Note how a call went."""
        entry = self._entries.get(outcome.name)
        if entry is None:
            return
        entry.answers = outcome.taken
        entry.accepted = now if outcome.taken else entry.accepted
        if outcome.status == OK:
            entry.page = True
        elif outcome.status in REFUSALS and entry.page is None:
            entry.page = False
            self._gate.note(entry.sources[0], "no_page", f"{_pageless(entry)} (HTTP {outcome.status})")

    def silence(self, address: str, now: float) -> float:
        """Seconds since one last took a connection, or was first reported; 0 if no one reports it."""
        entry = self._entries.get(address)
        if entry is None or entry.answers:
            return 0.0
        return now - (entry.since if entry.accepted is None else entry.accepted)

    def served(self, now: float) -> list[Entry]:
        """Those that Prometheus is to read."""
        return [entry for entry in self if entry.is_served(now, self._forget_after)]


def _pageless(entry: Entry) -> str:
    whose = entry.labels.get("run") or entry.address
    return (
        f"servers of {whose} have no page {entry.path}, so Prometheus is not sent there. Fix: under verl, "
        "rollout.disable_log_stats=False for vLLM, rollout.prometheus.enable=True for SGLang"
    )
