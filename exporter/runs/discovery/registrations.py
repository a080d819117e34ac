"""What clients register: their requests, and the table of servers, which is saved: clients register once.

The API is that of rl-insight's server, so that verl's `rl_insight` logger works as it is.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from exporter import secret_shapes
from exporter.http.exposition import Metric, own
from exporter.runs.discovery.address import LONGEST, AddressError, Allowed
from exporter.runs.discovery.targets import ROLLOUT, TRAINER, Target
from exporter.runs.files import state_file
from exporter.runs.files.mounts import Mount
from exporter.runs.serve.views import View

OURS = frozenset({"job", "instance", "role", "severity", "topic"})
"""Rules and messages tell servers apart by these."""
TRAINERS = "trainer_metrics"
"""The job of pages with a trainer's numbers; the one that is meant where none is named."""
MOST_LABELS = 8
LONGEST_JOB = 100
LONGEST_NAME = 64
LONGEST_VALUE = 100  # Characters; Prometheus keeps each label's text for as long as the series
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OPEN = "labels without secrets, since everyone who sees an alert reads them"
_BODY = '{"job_name": "vllm", "targets": [{"target": "10.0.0.7:8000"}]}'


class RefusedError(Exception):
    """A request cannot be granted: the word it is counted by, its status, the reason, and headers."""

    def __init__(self, result: str, status: str, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(words)
        self.result, self.status, self.headers = result, status, headers


class Server(NamedTuple):
    """A server in a request: its checked address, and the labels that its client gives it."""

    address: str
    labels: dict[str, str]


class RegistrationRequest(NamedTuple):
    """Servers of one job; no two have one address."""

    job: str
    servers: tuple[Server, ...]


def read_request(body: bytes, allowed: Allowed) -> RegistrationRequest:
    """Return what a request asks for. Raises RefusedError."""
    asked = _document(body)
    usual = checked_labels(asked.get("labels"), "labels", {})
    items = asked.get("targets")
    if not isinstance(items, list) or not items:
        raise _invalid("malformed", "targets is not a list of servers", 'one such as ["10.0.0.7:8000"]')
    servers: dict[str, Server] = {}
    for place, item in enumerate(items):
        labels, where = usual, f"targets[{place}]"
        if isinstance(item, dict):
            labels = checked_labels(item.get("labels"), f"{where}.labels", usual)
            item, where = item.get("target"), f"{where}.target"  # noqa: PLW2901
        if not isinstance(item, str):
            raise _invalid("malformed", f"{where} is not a server", 'one such as "10.0.0.7:8000"')
        try:
            server = Server(allowed.checked(item), labels)
        except AddressError as problem:
            raise RefusedError("address", "400 Bad Request", f"{where}: {problem}.") from None
        servers[server.address] = server
    job = asked.get("job_name") or TRAINERS
    if not isinstance(job, str) or not job.isprintable() or len(job) > LONGEST_JOB:
        expected = f"at most {LONGEST_JOB} printable characters"
        raise _invalid("malformed", "job_name is not a valid name", expected)
    return RegistrationRequest(job, tuple(servers.values()))


def checked_labels(found: Any, where: str, usual: Mapping[str, str]) -> dict[str, str]:
    """Return labels of the body's object at ``where`` beside the ``usual``; numbers become text.

    Raises RefusedError for what is no object, or for what a label may not hold; ``None`` has no labels.
    """
    if found is None:
        return dict(usual)
    if not isinstance(found, Mapping):
        raise _invalid("labels", f"{where} is not an object", 'an object such as {"replica": "0"}')
    count = len(usual.keys() | found.keys())
    if count > MOST_LABELS:
        expected = f"at most {MOST_LABELS}, those of all targets included"
        raise _invalid("labels", f"{where} has {count} labels", expected)
    labels = dict(usual)
    for name, value in found.items():
        _check_name(name, where)
        labels[name] = _label_value(value, f"{where}.{name}")
    return labels


def _check_name(name: str, where: str) -> None:
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name.startswith("__"):
        raise _invalid(
            "labels",
            f"{where} has a label {name[:LONGEST_NAME]!r}",
            f"names of letters, digits and _, at most {LONGEST_NAME}, that begin with no digit and no __",
        )
    if name in OURS:
        raise _invalid("labels", f"{where} has a label {name!r}, which Stepwatch gives", "another name")
    if secret_shapes.names_one(name):
        raise _invalid("labels", f"{where} has a label {name!r}, named like a secret", _OPEN)


def _label_value(value: Any, where: str) -> str:
    text = str(value) if isinstance(value, (int, float)) else value
    if not isinstance(text, str) or not text.isprintable() or len(text) > LONGEST_VALUE:
        expected = f"at most {LONGEST_VALUE} printable characters, or a number"
        raise _invalid("labels", f"{where} is not a valid label value", expected)
    if kind := secret_shapes.found(text):
        raise _invalid("labels", f"{where} holds what looks like {kind}", _OPEN)
    return text


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except json.JSONDecodeError as problem:
        fault = f"not valid JSON: {problem.msg} in line {problem.lineno}, column {problem.colno}"
    except (ValueError, RecursionError):
        fault = "not valid JSON"
    else:
        if isinstance(found, dict):
            return found
        fault = "not an object"
    raise _invalid("malformed", f"The body is {fault}", _BODY)


def _invalid(result: str, fault: str, expected: str) -> RefusedError:
    return RefusedError(result, "400 Bad Request", f"{fault}. Expected: {expected}.")


logger = logging.getLogger(__name__)
MOST = 2000
MOST_OF_JOB = 1000
GONE_SECONDS = 600.0
"""A server that is silent for that long makes room for another, if there is no other room."""
FORGOTTEN_SECONDS = 24 * 3600.0
"""None comes back after that time: the next run has other ports, and registers them."""
FORGET_SECONDS = 60.0  # between two looks for servers that will not come back
ENGINES = ("vllm", "sglang", "trtllm", "rollout")
"""How the jobs of rollout servers begin: verl registers them by the engine's name."""
JOB_LABEL = "rl_insight_job"  # where rl-insight keeps the name of a job, too
NAME = "registrations.state"
ASIDE = "registrations.aside"
TITLE = "stepwatch-registrations 1"
_LONGEST_TEXTS = LONGEST + LONGEST_JOB + MOST_LABELS * (LONGEST_NAME + LONGEST_VALUE)
_FIELDS = 250  # bytes of a registration beside its texts: names, quotes, commas, the time
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
    """Registrations by address: of a port the last is valid. ``version`` rises with each change."""

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
        """Register all servers of a request or none (RefusedError); ``now`` in seconds since the epoch."""
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
        """Register servers; returns how many there are of their job now. Raises RefusedError."""
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
