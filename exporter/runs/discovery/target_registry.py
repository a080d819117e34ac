"""All targets of all sources: each address once, and whether it is served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.runs.discovery.address import MOST, Allowlist
from exporter.runs.discovery.prober import Outcome

METRICS_PATH = "/metrics"

ROLLOUT, RAY, TRAINER = "rollout", "ray", "trainer"
"""Roles: what a server is for. EngineGone reports a lost rollout server, RayNodeLost a part of Ray."""

PROVE_SECONDS = 120.0
"""How long one is served that has never taken a connection: less than EngineGone waits, since an old list
names servers that are long gone."""

OK = 200
REFUSALS = range(300, 500)
"""What a server answers that has no such page, or sends on to another, which Prometheus does not follow.

A busy one may answer anything else, or not in time.
"""


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
    """Reports targets; ``name`` is its label in metrics.

    ``read`` is when what it reports was last in good order, in seconds since the epoch; ``None``: never.
    """

    name: str
    read: float | None

    def targets(self) -> Iterable[Target]:
        """Return all current targets; called in discovery's thread."""


@dataclass(slots=True)
class Entry:
    """A target as all its sources together report it; times in seconds of the steady clock.

    ``since`` is when it was first reported, ``accepted`` when it last took a connection, and ``answers``
    whether it did the last time. ``page``: it has a page of metrics. ``None`` is not known yet.
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

    def merge(self, targets: list[Target]) -> None:
        """Take what the sources report: the last one's labels count, and the end as reported with the run."""
        self.labels = {name: value for one in targets for name, value in one.labels.items()}
        self.path = next((one.path for one in reversed(targets) if one.path != METRICS_PATH), METRICS_PATH)
        self.sources = tuple(dict.fromkeys(one.source for one in targets))
        self.over = all(one.over for one in [one for one in targets if "run" in one.labels] or targets)

    def is_served(self, now: float, forget_after: float) -> bool:
        """Whether to serve it to Prometheus; a target without a page is alive, but would seem lost."""
        if self.page is False:
            return False
        if self.over:
            return bool(self.answers)
        if self.accepted is None:
            return now - self.since < PROVE_SECONDS
        return now - self.accepted < forget_after


class TargetRegistry:
    """The targets by address; ``forget_after`` in seconds."""

    def __init__(self, forget_after: float, allowlist: Allowlist) -> None:
        self._forget_after, self._allowlist = forget_after, allowlist
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def update(self, targets: Iterable[Target], now: float) -> None:
        """Take all that the sources report now, and drop the rest."""
        by_address: dict[str, list[Target]] = {}
        for target in targets:
            by_address.setdefault(target.address, []).append(target)
        for address in self._entries.keys() - by_address.keys():
            del self._entries[address]
        for address, same in by_address.items():
            if address in self._entries or len(self._entries) < MOST:
                self._entries.setdefault(address, Entry(address, now)).merge(same)
            else:
                words = f"targets beyond the first {MOST} are left out"
                self._allowlist.note(same[0].source, "too_many", words)

    def path(self, address: str) -> str:
        """Return the page to probe; empty once it is known to exist."""
        entry = self._entries.get(address)
        return entry.path if entry and not entry.page else ""

    def record(self, outcome: Outcome, now: float) -> None:
        """Note how a probe went."""
        entry = self._entries.get(outcome.name)
        if entry is None:
            return
        entry.answers = outcome.taken
        entry.accepted = now if outcome.taken else entry.accepted
        if outcome.status == OK:
            entry.page = True
        elif outcome.status in REFUSALS and entry.page is None:
            entry.page = False
            words = (
                f"servers of {entry.labels.get('run') or entry.address} have no page {entry.path}, so "
                "Prometheus does not scrape them. Fix: with verl, set rollout.disable_log_stats=False for "
                "vLLM, "
                f"rollout.prometheus.enable=True for SGLang (HTTP {outcome.status})"
            )
            self._allowlist.note(entry.sources[0], "no_page", words)

    def silence(self, address: str, now: float) -> float:
        """Return the seconds since one last took a connection, or was first reported; 0 if it is unknown."""
        entry = self._entries.get(address)
        if entry is None or entry.answers:
            return 0.0
        return now - (entry.since if entry.accepted is None else entry.accepted)

    def served(self, now: float) -> list[Entry]:
        """Return the targets to serve to Prometheus."""
        return [entry for entry in self if entry.is_served(now, self._forget_after)]
