"""What sources report, by address: probed, and listed for Prometheus' http_sd. Times are steady seconds."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Protocol

from exporter.http.exposition import Metric, Sample, by_label, own
from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.logs.log import Log
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Servers
from exporter.runs.targets.target import METRICS_PATH, MOST, ROLLOUT, AddressMap, Allowlist, Target

MOST_PROBES = 128  # under way at a time: each is an open file
TIMEOUT_SECONDS = 3.0
PROBE_SECONDS = 15.0
"""Between two probes of one address; a quarter more or less, so that they do not stay together."""
LOOK_SECONDS = 5.0  # how often sources are asked: Ray writes its list as often
START_SECONDS = 1.0  # the same until the first answer
PROVE_SECONDS = 120.0
"""How long one is served that has never taken a connection: less than EngineGone waits, since an old list
names servers that are long gone."""
OK = 200
REFUSALS = range(300, 500)
"""What a server answers that has no such page, or sends on to another, which Prometheus does not follow.

A busy one may answer anything else, or not in time.
"""
OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOBUFS, errno.EAFNOSUPPORT})
"""Errors that say nothing about a server: there are no more files or watches here, or no IPv6."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class LogTargets:
    """A source of targets: what logs say, by ``update``."""

    name = "log"

    def __init__(self, allowlist: Allowlist) -> None:
        self.read: float | None = None
        self._allowlist = allowlist
        self._mentions: list[tuple[Servers, str, bool]] = []  # servers, their run, and whether it is over
        self._passed: dict[tuple[Servers, str], tuple[str, ...]] = {}

    def update(self, views: Iterable[View], logs: Iterable[Log]) -> None:
        """Take what the logs of runs report, and those without a run yet; of an address the last counts."""
        mentions = [(servers, "", False) for log in logs if log.run_set is None for servers in log.servers]
        for view in sorted(views, key=lambda view: (view.state == "running", view.run.times.last or 0.0)):
            for run in (view.run, *view.duplicates):  # the console's log may not be the one that is shown
                mentions += [(servers, view.name, view.state != "running") for servers in run.servers]
        self._mentions, self.read = mentions, time.time() if mentions else self.read

    def targets(self) -> Iterator[Target]:
        """Yield the servers of all mentions; those of a mention are checked once."""
        before, self._passed = self._passed, {}
        for servers, run, over in self._mentions:
            addresses = before.get((servers, run), self._passed.get((servers, run)))
            if addresses is None:
                addresses = self._allowlist.passed(
                    self.name, run or "a log without a step", servers.addresses
                )
            self._passed[servers, run] = addresses
            labels = {"job": ROLLOUT, "role": ROLLOUT, **({"run": run} if run else {})}
            yield from (Target(address, labels, servers.path, over) for address in addresses)


class TargetSource(Protocol):
    """Reports targets; ``read``: when they were last in good order, since the epoch."""

    name: str
    read: float | None

    def targets(self) -> Iterable[Target]:
        """Return all current targets; called in discovery's thread."""


@dataclass(slots=True)
class Entry:
    """A target as all its sources together report it, since ``since``.

    ``accepted`` is when it last took a connection, ``answers`` whether it did the last time, ``page`` whether
    it has a page of metrics; ``None`` is not known yet.
    """

    since: float
    labels: dict[str, str] = field(default_factory=dict)
    path: str = METRICS_PATH
    sources: tuple[str, ...] = ()
    accepted: float | None = None
    answers: bool | None = None
    page: bool | None = None
    probes: asyncio.Task[None] | None = None

    def update(self, reports: Sequence[tuple[str, Target]], now: float, forget_after: float) -> str:
        """Take what sources report, of which the last one's labels count; returns whether it is served.

        One without a page is not: it is alive, but would seem lost. It is over as reported with the run.
        """
        targets = [target for _, target in reports]
        self.labels = {name: value for one in targets for name, value in one.labels.items()}
        self.path = next((one.path for one in reversed(targets) if one.path != METRICS_PATH), METRICS_PATH)
        self.sources = tuple(dict.fromkeys(source for source, _ in reports))
        if self.page is False:
            return "pageless"
        if all(one.over for one in [one for one in targets if "run" in one.labels] or targets):
            there = bool(self.answers)
        elif self.accepted is None:
            there = now - self.since < PROVE_SECONDS
        else:
            there = now - self.accepted < forget_after
        return "served" if there else "silent"


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
        self._sources, self._allowlist, self._forget_after = sources, allowlist, forget_after
        self._address_map, self._ready = address_map, ready
        self._last_good: dict[str, list[Target]] = {}
        self._entries: dict[str, Entry] = {}
        self._states: Counter[tuple[str, str]] = Counter()
        self._page: bytes | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to look, in the background."""
        Thread(target=lambda: asyncio.run(self._run()), name="discovery", daemon=True).start()

    def stop(self) -> None:
        """Have it end."""
        self._stopped = True

    def routes(self) -> Table:
        """Return the page for Prometheus, which demands exactly this content type."""

        def answer(_: Request) -> Answer:
            if self._page is None:
                return text("503 Service Unavailable", "logs are still being read\n")
            return Answer("200 OK", "application/json", self._page)

        return {"/sd/rollout": {"GET": answer}}

    def samples(self) -> Iterator[Metric]:
        """Yield what was found where, and what went wrong."""
        found: list[Sample] = [
            ({"source": source.name, "state": state}, self._states[source.name, state])
            for source in self._sources
            for state in ("served", "silent", "pageless")
        ]
        yield own("discovery_targets", "Servers found: served to Prometheus or not.", found)
        errors = list(self._allowlist.counts.items())
        failed: list[Sample] = [({"source": name, "reason": each}, count) for (name, each), count in errors]
        yield own("discovery_errors_total", "Unreadable sources and invalid targets.", failed)
        read = {source.name: source.read for source in self._sources if source.read is not None}
        text = "When a source was last valid."
        yield own("discovery_read_timestamp_seconds", text, by_label("source", read))

    def silence(self, address: str) -> float:
        """Seconds since a server last took a connection, or was first reported; 0 if it is unknown."""
        entry = self._entries.get(address)
        if entry is None or entry.answers:
            return 0.0
        return time.monotonic() - (entry.since if entry.accepted is None else entry.accepted)

    async def _run(self) -> None:
        room = asyncio.Semaphore(MOST_PROBES)
        while not self._stopped:
            try:
                self._look(room)
            except Exception as fault:  # noqa: BLE001  (an unforeseen one must not freeze the targets)
                words = f"{type(fault).__name__}, an internal error of Stepwatch"
                self._allowlist.note("discovery", "fault", words, fault)
            await asyncio.sleep(START_SECONDS if self._page is None else LOOK_SECONDS)

    def _look(self, room: asyncio.Semaphore) -> None:
        """Take what all sources report now, drop the rest, and list what is to be served."""
        now, reported = time.monotonic(), self._reported()
        for address in self._entries.keys() - reported.keys():
            if probes := self._entries.pop(address).probes:
                probes.cancel()
        states, groups = Counter[tuple[str, str]](), dict[tuple[tuple[str, str], ...], list[str]]()
        for address, reports in reported.items():
            entry = self._entries.get(address)
            if entry is None:
                if len(self._entries) >= MOST:
                    words = f"targets beyond the first {MOST} are left out"
                    self._allowlist.note(reports[0][0], "too_many", words)
                    continue
                entry = self._entries[address] = Entry(now)
            if entry.probes is None or entry.probes.done():  # or an unforeseen fault ended them
                entry.probes = asyncio.create_task(self._probe(address, entry, room))
            state = entry.update(reports, now, self._forget_after)
            states.update((source, state) for source in entry.sources)
            if state == "served":
                path = {"__metrics_path__": entry.path} if entry.path != METRICS_PATH else {}
                labels = tuple(sorted({**entry.labels, **path}.items()))
                groups.setdefault(labels, []).append(self._address_map.of_prometheus(address))
        self._states = states
        if self._page is not None or self._ready():
            listed = [{"targets": each, "labels": dict(labels)} for labels, each in groups.items()]
            self._page = json.dumps(listed).encode()

    def _reported(self) -> dict[str, list[tuple[str, Target]]]:
        """Each address with the sources that report it."""
        reported: dict[str, list[tuple[str, Target]]] = {}
        for source in self._sources:
            try:
                self._last_good[source.name] = list(source.targets())
            except Exception as fault:  # noqa: BLE001  (an unforeseen one must not cost the others' targets)
                words = f"{type(fault).__name__}, an internal error of Stepwatch; its last state stays in use"
                self._allowlist.note(source.name, "fault", words, fault)
            for target in self._last_good.get(source.name, ()):
                reported.setdefault(target.address, []).append((source.name, target))
        return reported

    async def _probe(self, address: str, entry: Entry, room: asyncio.Semaphore) -> None:
        """Connect to a server again and again, and ask for its page until it is known to have one."""
        host, port = self._address_map.of_ours(address)
        # asked each time: before Python 3.12, wait_for may lose a cancellation
        while not self._stopped and self._entries.get(address) is entry:
            async with room:
                found = await probe(host, port, address, "" if entry.page else entry.path)
            if found:
                entry.answers, status = found
                entry.accepted = time.monotonic() if entry.answers else entry.accepted
                if status == OK:
                    entry.page = True
                elif status in REFUSALS and entry.page is None:
                    entry.page = False
                    words = (
                        f"servers of {entry.labels.get('run') or address} have no page {entry.path}, so "
                        "Prometheus does not scrape them. Fix: with verl, set "
                        "rollout.disable_log_stats=False for vLLM, "
                        f"rollout.prometheus.enable=True for SGLang (HTTP {status})"
                    )
                    self._allowlist.note(entry.sources[0], "no_page", words)
            await asyncio.sleep(PROBE_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311


async def probe(host: str, port: int, name: str, path: str) -> tuple[bool, int | None] | None:
    """Whether a server takes a connection, and the status of the page at ``path``, if any is asked for.

    ``None``: nothing is known.
    """
    taken, status = False, None

    async def talk() -> None:
        nonlocal taken, status
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
            sock.settimeout(0)
            await loop.sock_connect(sock, (host, port))
            # a connection to a free port of this machine may reach itself
            taken = sock.getpeername() != sock.getsockname()
            if taken and path:
                request = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
                await loop.sock_sendall(sock, request.encode())
                block = await loop.sock_recv(sock, 65536)
                status = int(found[1]) if (found := _STATUS.match(block)) else None
                # all is read: a server complains in its log if a client leaves in the middle
                while block:
                    block = await loop.sock_recv(sock, 65536)

    try:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(talk(), TIMEOUT_SECONDS)
    except OSError as problem:
        if problem.errno in OURS:
            return None
    return taken, status
