"""Finds servers, probes them, and lists them for Prometheus: its http_sd, in a thread of its own."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread

from exporter.http.exposition import Metric, Sample, by_label, own
from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.discovery.address import AddressMap, Allowlist
from exporter.runs.discovery.prober import Prober, Schedule
from exporter.runs.discovery.target_registry import METRICS_PATH, Entry, Source, Target, TargetRegistry

NAME = "discovery"
"""What its own faults are counted for."""

LOOK_SECONDS = 5.0
"""How often sources are asked: Ray writes its list as often."""

TURN_SECONDS = 1.0
"""How long a turn waits for probes at most."""

KIND = "application/json"
"""Prometheus demands exactly this."""

STATES = ("served", "silent", "pageless")


class Discovery:
    """The targets of all ``sources``; where two report one address, the later one's labels count.

    ``forget_after`` in seconds. Until ``ready`` says true no answer is given: Prometheus keeps the targets
    that it has.
    """

    def __init__(
        self,
        sources: Sequence[Source],
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
