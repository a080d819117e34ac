"""Finds servers, keeps an eye on them, and tells Prometheus: its http_sd, in a thread of its own."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from threading import Event as Flag
from threading import Thread

from exporter.http.exposition import Family, Sample
from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.discovery.address import AddressMap, Allowlist
from exporter.runs.discovery.prober import Prober
from exporter.runs.discovery.target_registry import METRICS_PATH, Entry, Source, Target, TargetRegistry

CALL_SECONDS = 15.0
"""Between two calls of one address; a quarter more or less, so that they do not stay together."""


class Schedule:
    """The order of calls; times in seconds of the steady clock."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, str]] = []
        self._known: set[str] = set()

    def meet(self, addresses: set[str], now: float) -> None:
        """These are to be called from now on, and no others."""
        for address in addresses - self._known:
            heappush(self._queue, (now, address))
        self._queue = [entry for entry in self._queue if entry[1] in addresses]
        heapify(self._queue)
        self._known = set(addresses)

    def due(self, now: float, most: int) -> Iterator[str]:
        """Those that are to be called now, who has waited longest first."""
        while most > 0 and self._queue and self._queue[0][0] <= now:
            _, address = heappop(self._queue)
            heappush(self._queue, (now + CALL_SECONDS * random.uniform(0.75, 1.25), address))  # noqa: S311
            most -= 1
            yield address


NAME = "discovery"
"""What its own faults are counted for."""

LOOK_SECONDS = 5.0
"""How often sources are asked: Ray writes its list as often."""

TURN_SECONDS = 1.0
"""How long a turn waits for calls at most."""

KIND = "application/json"
"""Prometheus demands exactly this."""

STANDINGS = ("served", "silent", "pageless")

_TARGETS = Family("stepwatch_discovery_targets", "gauge", "Servers found: served to Prometheus or not.")
_ERRORS = Family(
    "stepwatch_discovery_errors_total", "counter", "What could not be read, or may be no target."
)
_READ = Family("stepwatch_discovery_read_timestamp_seconds", "gauge", "When a source was last in good order.")


class Discovery:
    """The targets of all ``sources``; where two report one address, the later one's labels count.

    ``forget_after`` in seconds. Until ``ready`` says true no answer is given: Prometheus keeps the targets
    that it has then, and would drop those of logs that are still being read.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        gate: Allowlist,
        forget_after: float,
        way: AddressMap,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sources, self._gate, self._way, self._ready = sources, gate, way, ready
        self._book, self._callers, self._rounds = TargetRegistry(forget_after, gate), Prober(), Schedule()
        self._last_good: dict[str, list[Target]] = {}
        self._heard: list[Target] = []
        self._served: list[str] = []
        self._page: bytes | None = None
        self._standing: Counter[tuple[str, str]] = Counter()
        self._next_look = 0.0
        self._stop = Flag()

    def start(self) -> None:
        """Begin to look, in the background."""
        Thread(target=self._run, name="discovery", daemon=True).start()

    def stop(self) -> None:
        """Have it end."""
        self._stop.set()

    def routes(self) -> Table:
        """The page for Prometheus."""
        return {"/sd/rollout": {"GET": self._answer}}

    def samples(self) -> Iterator[tuple[Family, list[Sample]]]:
        """What was found where, and what went wrong."""
        standing, errors = self._standing, list(self._gate.counts.items())
        names = [source.name for source in self._sources]
        yield (
            _TARGETS,
            [({"source": name, "state": each}, standing[name, each]) for name in names for each in STANDINGS],
        )
        yield _ERRORS, [({"source": name, "reason": reason}, count) for (name, reason), count in errors]
        yield _READ, [({"source": each.name}, each.read) for each in self._sources if each.read is not None]

    def silence(self, address: str) -> float:
        """For how many seconds a server has taken no connection; may be asked from any thread."""
        return self._book.silence(address, time.monotonic())

    def _answer(self, _: Request) -> Answer:
        page = self._page
        if page is None:
            return text("503 Service Unavailable", "logs are still being read\n")
        return Answer("200 OK", KIND, page)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._try_turn()
        self._callers.close()

    def _try_turn(self) -> None:
        try:
            self.turn()
        except Exception as fault:  # noqa: BLE001  (one that no one thought of must not freeze the targets)
            self._gate.note(NAME, "fault", f"{type(fault).__name__}, which is a fault of Stepwatch", fault)
            self._stop.wait(TURN_SECONDS)

    def turn(self) -> None:
        """Ask the sources if it is time to, and go on with the calls."""
        now = time.monotonic()
        if now >= self._next_look:
            self._look(now)
            self._next_look = now + (TURN_SECONDS if self._page is None else LOOK_SECONDS)
        for address in self._rounds.due(now, self._callers.room):
            self._callers.call(address, *self._way.of_ours(address), self._book.path(address), now)
        for outcome in self._callers.ended(TURN_SECONDS, now):
            self._book.tried(outcome, now)

    def _look(self, now: float) -> None:
        targets = list(self._all_targets())
        changed = targets != self._heard
        if changed:
            self._heard = targets
            self._book.take(targets, now)
            self._rounds.meet({entry.address for entry in self._book}, now)
        self._serve(self._book.served(now), changed=changed)

    def _serve(self, served: list[Entry], *, changed: bool) -> None:
        """Write the answer anew if anything changed: with thousands of servers that takes its time."""
        self._note(served)
        addresses = [entry.address for entry in served]
        if self._page is None and not self._ready():
            return
        if changed or self._page is None or addresses != self._served:
            self._served = addresses
            self._page = json.dumps(list(self._groups(served))).encode()

    def _all_targets(self) -> Iterator[Target]:
        for source in self._sources:
            try:
                self._last_good[source.name] = list(source.targets())
            except Exception as fault:  # noqa: BLE001  (one that no one thought of must not cost the others' targets)
                words = f"{type(fault).__name__}, which is a fault of Stepwatch; what was known still holds"
                self._gate.note(source.name, "fault", words, fault)
            yield from self._last_good.get(source.name, ())

    def _note(self, served: Iterable[Entry]) -> None:
        shown = {entry.address for entry in served}
        self._standing = Counter(
            (source, _standing(entry, shown)) for entry in self._book for source in entry.sources
        )

    def _groups(self, served: Iterable[Entry]) -> Iterator[dict[str, object]]:
        """Targets with the same labels, as http_sd has them."""
        groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for entry in served:
            path = {"__metrics_path__": entry.path} if entry.path != METRICS_PATH else {}
            labels = tuple(sorted({**entry.labels, **path}.items()))
            groups.setdefault(labels, []).append(self._way.of_prometheus(entry.address))
        for labels, addresses in groups.items():
            yield {"targets": addresses, "labels": dict(labels)}


def _standing(entry: Entry, shown: set[str]) -> str:
    if entry.address in shown:
        return "served"
    return "pageless" if entry.page is False else "silent"
