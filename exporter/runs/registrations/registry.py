"""What is registered now: asked by discovery, changed by clients, and saved, since clients register once."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

from exporter.http.exposition import Metric, own
from exporter.runs.discovery.address import LONGEST, AddressError, Allowed
from exporter.runs.discovery.target_registry import ROLLOUT, TRAINER, Target
from exporter.runs.files import state_file
from exporter.runs.files.mounts import Mount
from exporter.runs.registrations.registration import (
    LONGEST_JOB,
    LONGEST_NAME,
    LONGEST_VALUE,
    MOST_LABELS,
    TRAINERS,
    RefusedError,
    RegistrationRequest,
)
from exporter.runs.serve.views import View

logger = logging.getLogger(__name__)

MOST = 2000
MOST_OF_JOB = 1000

GONE_SECONDS = 600.0
"""A server that is silent for that long makes room for another, if there is no other room."""

FORGOTTEN_SECONDS = 24 * 3600.0
"""None comes back after that time: the next run has other ports, and registers them."""

FORGET_SECONDS = 60.0
"""Between two looks for servers that will not come back."""

ENGINES = ("vllm", "sglang", "trtllm", "rollout")
"""How the jobs of rollout servers begin: verl registers them by the engine's name."""

JOB_LABEL = "rl_insight_job"
"""Where rl-insight keeps the name of a job, too."""

NAME = "registrations.state"
ASIDE = "registrations.aside"
TITLE = "stepwatch-registrations 1"

_LONGEST_TEXTS = LONGEST + LONGEST_JOB + MOST_LABELS * (LONGEST_NAME + LONGEST_VALUE)
_FIELDS = 250
"""Bytes of a registration beside its texts: names, quotes, commas, the time."""

MOST_BYTES = len(TITLE) + 100 + MOST * (4 * _LONGEST_TEXTS + _FIELDS)
"""What the most registrations with the longest texts take: no sign more than 4 bytes, as UTF-8 has it.

Less would lose what was accepted; without a bound, any file that lies there would be read whole.
"""

Silence = Callable[[str], float]
"""For how many seconds an address has taken no connection; 0 for one that was not tried yet."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A server: its address, the job it was registered for, its labels, and when, since the epoch."""

    address: str
    job: str
    labels: Mapping[str, str]
    at: float


class Table:
    """Registrations by address: a port has one server, so the last registration is the valid one.

    ``version`` rises with each change.
    """

    def __init__(self, known: Iterable[Registration] = ()) -> None:
        self.version = 0
        self._known = {one.address: one for one in known}

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def of_job(self, job: str) -> int:
        """Return how many servers of a job there are."""
        return sum(one.job == job for one in self)

    def add(self, request: RegistrationRequest, now: float, silence: Silence) -> None:
        """Register all servers of a request, or none; ``now`` in seconds since the epoch.

        Raises:
            RefusedError: There is no room for them.
        """
        new = {server.address for server in request.servers}
        others = [one for one in self if one.address not in new]
        of_job = [one for one in others if one.job == request.job]
        leaving = _leaving(of_job, len(new), MOST_OF_JOB, silence)
        others = [one for one in others if one.address not in leaving]
        leaving = _leaving(others, len(new), MOST, silence)
        self._known = {one.address: one for one in others if one.address not in leaving}
        for server in request.servers:
            self._known[server.address] = Registration(server.address, request.job, server.labels, now)
        self.version += 1

    def forget(self, silence: Silence) -> None:
        """Drop those that will not come back."""
        left = {one.address: one for one in self if silence(one.address) < FORGOTTEN_SECONDS}
        if len(left) < len(self):
            self._known = left
            self.version += 1


def _leaving(others: list[Registration], new: int, most: int, silence: Silence) -> set[str]:
    """Return those that make room: the longest silent, and never one that is alive."""
    surplus = len(others) + new - most
    if surplus <= 0:
        return set()
    silent = {one.address: silence(one.address) for one in others}
    gone = [address for address, seconds in silent.items() if seconds >= GONE_SECONDS]
    if len(gone) < surplus:
        which = "in all" if most == MOST else "of one job"
        words = f"No room for {new} more servers: {len(others)} are registered."
        raise RefusedError("full", "503 Service Unavailable", f"{words} Expected: at most {most} {which}.")
    return set(sorted(gone, key=lambda address: -silent[address])[:surplus])


class Store:
    """The file of registrations; ``None`` as folder stores nothing. ``errors`` counts failures."""

    def __init__(self, folder: Path | None, allowed: Allowed) -> None:
        self.errors = 0
        self._path, self._allowed = folder and folder / NAME, allowed
        self._failing = self._warned = False
        self._thread = Mount(str(folder))

    def load(self) -> list[Registration]:
        """Return the stored registrations. A damaged file is moved aside, and the result is empty."""
        path = self._path
        if path is None:
            return []
        try:
            body = self._thread.call(lambda: state_file.read(path, TITLE, MOST_BYTES))
        except FileNotFoundError:
            return []
        except OSError as problem:
            self._failed(f"{path} cannot be read: {problem.strerror}. Starting without registrations.")
            return []
        if body is None:
            aside = path.with_name(ASIDE)
            try:
                path.replace(aside)
            except OSError:
                aside = path
            self._failed(
                f"{path} is damaged. It was moved to {aside}; starting without registrations. Fix: none is "
                "needed for jobs that start from now on."
            )
            return []
        allowed = []
        for one in (Registration(**fields) for fields in json.loads(body)[:MOST]):
            try:
                self._allowed.checked(one.address)
            except AddressError as problem:  # noqa: PERF203  (settings may have changed since)
                logger.warning("A registered server is left out: %s.", problem)
            else:
                allowed.append(one)
        return allowed

    def save(self, known: Iterable[Registration]) -> bool:
        """Write what is registered now; returns whether that worked."""
        path = self._path
        if path is None:
            if not self._warned:
                logger.warning("Registrations are kept in memory only. Fix: name a folder with --state-dir.")
            self._warned = True
            return True
        # with its escapes (ensure_ascii) a sign could take 12 bytes
        body = json.dumps([asdict(one) for one in known], ensure_ascii=False).encode()
        try:
            self._thread.call(lambda: state_file.write(path, TITLE, body))
        except OSError as problem:
            if not self._failing:
                self._failed(
                    f"{path} cannot be written: {problem.strerror}. "
                    "A restart would lose the registrations. The exporter retries."
                )
            self._failing = True
            return False
        self._failing = False
        return True

    def _failed(self, words: str) -> None:
        self.errors += 1
        logger.error("%s", words)


class Registry:
    """A source of targets. Each method may be called from any thread.

    ``silence`` returns for how long a server is silent; set it once that is known.
    """

    name = "registered"

    def __init__(self, store: Store) -> None:
        self.silence: Silence = lambda _: 0.0
        self._runs: Mapping[str, View] = {}
        self._store = store
        self._lock = Lock()
        self._table = Table(store.load())
        self.read = max((one.at for one in self._table), default=None)
        self._saved = 0
        self._forgot = time.monotonic()

    def add(self, request: RegistrationRequest) -> int:
        """Register servers; returns how many there are of their job now.

        Raises:
            RefusedError: There is no room for them.
        """
        with self._lock:
            self.read = time.time()
            self._table.add(request, self.read, self.silence)
            return self._table.of_job(request.job)

    def set_runs(self, runs: Mapping[str, View]) -> None:
        """Take the runs of trainers' pages, by address, as they are now."""
        self._runs = runs

    def targets(self) -> list[Target]:
        """Return all servers, for Prometheus to read."""
        with self._lock:
            return [_target(one, self._runs.get(one.address)) for one in self._table]

    def trainers(self) -> list[str]:
        """Return the addresses of trainers' pages that are alive, the last one that was registered first."""
        with self._lock:
            pages = [one for one in self._table if one.job == TRAINERS]
        pages.sort(key=lambda one: -one.at)
        return [one.address for one in pages if self.silence(one.address) < GONE_SECONDS]

    def maintain(self) -> None:
        """Save changes, and forget servers that will not return; called repeatedly."""
        now = time.monotonic()
        with self._lock:
            if now - self._forgot > FORGET_SECONDS:
                self._forgot = now
                self._table.forget(self.silence)
        self.save()

    def save(self) -> None:
        """Save what changed since the last time."""
        with self._lock:
            version, known = self._table.version, list(self._table)
        if version != self._saved and self._store.save(known):
            self._saved = version

    def samples(self) -> Iterator[Metric]:
        """Yield how many servers there are, and the failures of the file."""
        with self._lock:
            count = len(self._table)
        yield own("registered_servers", "Registered servers.", count)
        yield own(
            "registration_file_errors_total",
            "Failures to read or write the file of registrations.",
            self._store.errors,
        )


def _target(one: Registration, run: View | None) -> Target:
    kind = ROLLOUT if one.job.startswith(ENGINES) else TRAINER
    labels = {**one.labels, JOB_LABEL: one.job, "job": kind, "role": kind}
    if run is None:
        return Target(one.address, labels, source=Registry.name)
    return Target(one.address, {**labels, "run": run.name}, source=Registry.name, over=run.state != "running")
