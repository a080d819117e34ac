"""The targets of Prometheus: servers that sources report, probed, and listed for its http_sd.

A probe finds out whether a server takes connections, and of a new one whether it has a page of metrics. Times
are in seconds of the steady clock, where nothing else is said.
"""

from __future__ import annotations

import json
import random
import re
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from threading import Event, Thread
from typing import NamedTuple, Protocol

from exporter.http.exposition import Metric, Sample, by_label, own
from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.discovery.address import MOST, AddressMap, Allowlist

MOST_PROBES = 128  # Probes that are under way at a time: each is an open file
TIMEOUT_SECONDS = 3.0
PROBE_SECONDS = 15.0
"""Between two probes of one address; a quarter more or less, so that they do not stay together."""
BLOCK = 65536
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class Outcome(NamedTuple):
    """How a probe of ``name`` ended: whether it connected, and the page's status, if any came."""

    name: str
    taken: bool
    status: int | None = None


class Schedule:
    """The order of probes."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, str]] = []
        self._known: set[str] = set()

    def set_addresses(self, addresses: set[str], now: float) -> None:
        """Have these probed from now on, and no others."""
        self._queue = [entry for entry in self._queue if entry[1] in addresses]
        self._queue += [(now, address) for address in addresses - self._known]
        heapify(self._queue)
        self._known = set(addresses)

    def due(self, now: float, most: int) -> Iterator[str]:
        """Yield the addresses to probe now, the longest waiting first."""
        while most > 0 and self._queue and self._queue[0][0] <= now:
            _, address = heappop(self._queue)
            heappush(self._queue, (now + PROBE_SECONDS * random.uniform(0.75, 1.25), address))  # noqa: S311
            most -= 1
            yield address


@dataclass(slots=True, eq=False)
class Probe:
    """A probe under way: ``request`` is what to ask for, ``taken`` says that someone is at the other end."""

    name: str
    sock: socket.socket
    until: float
    request: bytes
    taken: bool = False
    status: int | None = None

    def goes_on(self) -> bool:
        """Take the next step; returns whether there is another one."""
        with suppress(OSError):
            if not self.taken:
                # A connection to a free port of this machine may reach itself.
                self.taken = self.sock.getpeername() != self.sock.getsockname()
                return self.taken and bool(self.request) and self.sock.send(self.request) == len(self.request)
            # All is read: a server complains in its log if a client leaves in the middle.
            block = self.sock.recv(BLOCK)
            if self.status is None and (found := _STATUS.match(block)):
                self.status = int(found[1])
            return bool(block)
        return False


class Prober:
    """Probes addresses, many at a time."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._probes: set[Probe] = set()

    @property
    def room(self) -> int:
        """How many more may be probed now."""
        return MOST_PROBES - len(self._probes)

    def start(self, name: str, host: str, port: int, path: str, now: float) -> None:
        """Begin to connect to an IP address, and ask for the page at ``path``, if any."""
        request = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n" if path else ""
        with suppress(OSError):  # no more files, or no IPv6
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sock.settimeout(0)
            sock.connect_ex((host, port))  # whatever it says: a failure ends the probe as well
            probe = Probe(name, sock, now + TIMEOUT_SECONDS, request.encode())
            try:
                self._selector.register(sock, selectors.EVENT_WRITE, probe)
            except OSError:  # the machine watches no more of them
                sock.close()
            else:
                self._probes.add(probe)

    def ended(self, seconds: float, now: float) -> Iterator[Outcome]:
        """Wait up to a timeout, and yield the results of the probes that ended."""
        for key, _ in self._selector.select(seconds):
            if key.data.goes_on():
                self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
            else:
                yield self._end(key.data)
        for probe in [probe for probe in self._probes if probe.until < now]:
            yield self._end(probe)

    def close(self) -> None:
        """End all probes."""
        for probe in list(self._probes):
            self._end(probe)
        self._selector.close()

    def _end(self, probe: Probe) -> Outcome:
        self._probes.remove(probe)
        self._selector.unregister(probe.sock)
        probe.sock.close()
        return Outcome(probe.name, probe.taken, probe.status)


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


class TargetSource(Protocol):
    """Reports targets; ``name`` is its label.

    ``read``: when they were last in good order, since the epoch.
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


NAME = "discovery"  # what its own faults are counted for
LOOK_SECONDS = 5.0  # how often sources are asked: Ray writes its list as often
TURN_SECONDS = 1.0  # how long a turn waits for probes at most
KIND = "application/json"  # Prometheus demands exactly this
STATES = ("served", "silent", "pageless")


class Discovery:
    """Looks for the targets of all ``sources``, in a thread of its own, and serves those that are alive.

    Where two sources report one address, the later one's labels count. ``forget_after`` in seconds. Until
    ``ready`` says true no answer is given: Prometheus keeps the targets that it has.
    """

    def __init__(
        self,
        sources: Sequence[TargetSource],
        allowlist: Allowlist,
        forget_after: float,
        address_map: AddressMap,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sources, self._allowlist = sources, allowlist
        self._address_map, self._ready = address_map, ready
        self._registry = TargetRegistry(forget_after, allowlist)
        self._prober, self._schedule = Prober(), Schedule()
        self._last_good: dict[str, list[Target]] = {}
        self._reported: list[Target] = []
        self._served: list[str] = []
        self._page: bytes | None = None
        self._states: Counter[tuple[str, str]] = Counter()
        self._next_look = 0.0
        self._stop = Event()

    def start(self) -> None:
        """Begin to look, in the background."""
        Thread(target=self._run, name="discovery", daemon=True).start()

    def stop(self) -> None:
        """Have it end."""
        self._stop.set()

    def routes(self) -> Table:
        """Return the page for Prometheus."""
        return {"/sd/rollout": {"GET": self._answer}}

    def samples(self) -> Iterator[Metric]:
        """Yield what was found where, and what went wrong."""
        states, errors = self._states, list(self._allowlist.counts.items())
        targets: list[Sample] = []
        for source in self._sources:
            targets += [
                ({"source": source.name, "state": state}, states[source.name, state]) for state in STATES
            ]
        yield own("discovery_targets", "Servers found: served to Prometheus or not.", targets)
        failed: list[Sample] = [({"source": name, "reason": each}, count) for (name, each), count in errors]
        yield own("discovery_errors_total", "Unreadable sources and invalid targets.", failed)
        read = {source.name: source.read for source in self._sources if source.read is not None}
        text = "When a source was last valid."
        yield own("discovery_read_timestamp_seconds", text, by_label("source", read))

    def silence(self, address: str) -> float:
        """Return for how many seconds a server has taken no connection; may be asked from any thread."""
        return self._registry.silence(address, time.monotonic())

    def _answer(self, _: Request) -> Answer:
        if self._page is None:
            return text("503 Service Unavailable", "logs are still being read\n")
        return Answer("200 OK", KIND, self._page)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.turn()
            except Exception as fault:  # noqa: BLE001, PERF203  (an unforeseen one must not freeze the targets)
                words = f"{type(fault).__name__}, an internal error of Stepwatch"
                self._allowlist.note(NAME, "fault", words, fault)
                self._stop.wait(TURN_SECONDS)
        self._prober.close()

    def turn(self) -> None:
        """Ask the sources if it is time to, and go on with the probes."""
        now = time.monotonic()
        if now >= self._next_look:
            self._look(now)
            self._next_look = now + (TURN_SECONDS if self._page is None else LOOK_SECONDS)
        for address in self._schedule.due(now, self._prober.room):
            host, port = self._address_map.of_ours(address)
            self._prober.start(address, host, port, self._registry.path(address), now)
        for outcome in self._prober.ended(TURN_SECONDS, now):
            self._registry.record(outcome, now)

    def _look(self, now: float) -> None:
        reported = list(self._targets())
        changed = reported != self._reported
        if changed:
            self._reported = reported
            self._registry.update(reported, now)
            self._schedule.set_addresses({entry.address for entry in self._registry}, now)
        served = self._registry.served(now)
        addresses = [entry.address for entry in served]
        known, states = set(addresses), Counter[tuple[str, str]]()
        for entry in self._registry:
            unserved = "pageless" if entry.page is False else "silent"
            state = "served" if entry.address in known else unserved
            states.update((source, state) for source in entry.sources)
        self._states = states
        if self._page is None and not self._ready():
            return
        # Only if anything changed: with thousands of servers the answer takes its time.
        if changed or self._page is None or addresses != self._served:
            self._served = addresses
            self._page = json.dumps(list(self._groups(served))).encode()

    def _groups(self, served: Sequence[Entry]) -> Iterator[dict[str, object]]:
        """Yield the targets with the same labels together, as http_sd has them."""
        groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for entry in served:
            path = {"__metrics_path__": entry.path} if entry.path != METRICS_PATH else {}
            labels = tuple(sorted({**entry.labels, **path}.items()))
            groups.setdefault(labels, []).append(self._address_map.of_prometheus(entry.address))
        for labels, addresses in groups.items():
            yield {"targets": addresses, "labels": dict(labels)}

    def _targets(self) -> Iterator[Target]:
        for source in self._sources:
            try:
                self._last_good[source.name] = list(source.targets())
            except Exception as fault:  # noqa: BLE001  (an unforeseen one must not cost the others' targets)
                words = f"{type(fault).__name__}, an internal error of Stepwatch; its last state stays in use"
                self._allowlist.note(source.name, "fault", words, fault)
            yield from self._last_good.get(source.name, ())
