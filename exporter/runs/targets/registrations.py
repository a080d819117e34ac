"""rl-insight's server API, as its client asks it, so that verl's `rl_insight` logger works as it is.

Clients register their servers once, so the table of them is saved beside the states of runs.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from threading import Lock
from typing import Any

from exporter import secret_shapes
from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import Answer, Request
from exporter.http.routes import Table
from exporter.runs.files import token_files
from exporter.runs.files.mounts import HungError, Mount
from exporter.runs.files.notice import Once
from exporter.runs.files.state import Saved, State
from exporter.runs.serve.views import View
from exporter.runs.targets.target import ROLLOUT, TRAINER, AddressError, Allowed, Target

logger = logging.getLogger(__name__)
PLACE = Path("/registered")  # the name of the table among the states of logs
KIND = "application/json"  # a browser sends this to another site only if that allows it, which we never do
TRAINERS = "trainer_metrics"
"""The job of pages with a trainer's numbers; the one that is meant where none is named."""
ENGINES = ("vllm", "sglang", "trtllm", "rollout")
"""How the jobs of rollout servers begin: verl registers them by the engine's name."""
RESULTS = (
    *("accepted", "address", "content_type", "full", "labels"),
    *("malformed", "origin", "rate", "token", "token_file"),
)
OURS = frozenset({"job", "instance", "role", "severity", "topic"})
"""Rules and messages tell servers apart by these."""
EACH, ALL = (60.0, 1.0), (300.0, 10.0)
"""Requests at once and per second, of one client and of all: twenty jobs may start behind one address."""
MOST, MOST_OF_JOB = 2000, 1000
MOST_LABELS, LONGEST_JOB, LONGEST_NAME = 8, 100, 64
LONGEST_VALUE = 100  # characters; Prometheus keeps each label's text for as long as the series
GONE_SECONDS = 600.0
"""A server that is silent for that long makes room for another, if there is no other room."""
FORGOTTEN_SECONDS = 24 * 3600.0
"""None comes back after that time: the next run has other ports, and registers them."""
FORGET_SECONDS = 60.0  # between two looks for servers that will not come back
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OPEN = "labels without secrets, since everyone who sees an alert reads them"


class RefusedError(Exception):
    """A request cannot be granted: the word it is counted by, its status, the reason, and headers."""

    def __init__(self, result: str, status: str, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(words)
        self.result, self.status, self.headers = result, status, headers


@dataclass(frozen=True, slots=True)
class Registration:
    """A server: the job it was registered for, its labels, and when, since the epoch."""

    job: str
    labels: Mapping[str, str]
    at: float


class Registrations:
    """A source of targets: of an address the last registration counts. Any thread may call its methods.

    ``silence`` returns for how many seconds an address has taken no connection; set it once that is known.
    ``ports`` have rl-insight's names for them.
    """

    name = "registered"

    def __init__(
        self,
        states: State,
        allowed: Allowed,
        token_file: Path | None = None,
        ports: Mapping[str, int | None] | None = None,
    ) -> None:
        self.silence: Callable[[str], float] = lambda _: 0.0
        self._states, self._allowed = states, allowed
        self._token, self._rate, self._once = Token(token_file), RateLimit(), Once(logger)
        # Traces are not taken: without this port the client sends none.
        self._services = {"status": "ok", "otlp_port": None, **(ports or {})}
        self._results = Counter(dict.fromkeys(RESULTS, 0))
        self._runs: Mapping[str, View] = {}
        self._lock, self._forgot = Lock(), time.monotonic()
        known: dict[str, Registration] = {}
        saved = states.load(PLACE)
        for address, fields in saved.latest.items() if saved else ():
            try:
                known[allowed.checked(address)] = Registration(**fields)
            except AddressError as problem:  # noqa: PERF203  (settings may have changed since)
                logger.warning("A registered server is left out: %s.", problem)
        # replaced as a whole with each change, so that only a change needs the lock
        self._known = self._saved = known
        self.read = max((one.at for one in known.values()), default=None)

    def routes(self) -> Table:
        """Return the pages, by path."""
        return {
            "/healthz": {"GET": lambda _: _json("200 OK", {"status": "ok"})},
            "/api/v1/services": {"GET": lambda _: _json("200 OK", self._services)},
            "/api/v1/prometheus/targets": {"POST": self._register},
        }

    def _register(self, request: Request) -> Answer:
        try:
            self._admit(request)
            asked = read_request(request.body, self._allowed)
            count = self.add(asked)
        except RefusedError as refusal:
            self._results[refusal.result] += 1
            # rl-insight's client does not say why, and its user looks here.
            self._once.warn(refusal.result, f"{request.client} may not register servers: {refusal}")
            return _json(refusal.status, {"detail": str(refusal)}, *refusal.headers)
        self._results["accepted"] += 1
        job = next(iter(asked.values())).job
        # No reload and no file: Prometheus polls the targets every few seconds.
        document = {"status": "ok", "prometheus_reloaded": False, "job_name": job, "target_count": count}
        return _json("200 OK", {**document, "config_file": None, "targets_file": None})

    def _admit(self, request: Request) -> None:
        """Refuse a client that asks too often, a web page (any site that is visited could), a wrong token."""
        # Each request counts, refused ones too: a token is not to be guessed.
        if seconds := ceil(self._rate.wait(request.client, time.monotonic())):
            words = f"Too many requests. Expected: the next one in {seconds} s."
            raise RefusedError("rate", "429 Too Many Requests", words, ("Retry-After", str(seconds)))
        if "origin" in request.headers:
            words = (
                "Requests from browsers are refused. Expected: no Origin header. Fix: register servers from "
                "a program, such as rl-insight's client or curl."
            )
            raise RefusedError("origin", "403 Forbidden", words)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
            words = f"Expected: a body of the Content-Type {KIND}."
            raise RefusedError("content_type", "415 Unsupported Media Type", words)
        self._token.require(request.headers)

    def add(self, new: Mapping[str, Registration]) -> int:
        """Register servers of one job, all or none; returns how many there are of it. Raises RefusedError."""
        job = next(iter(new.values())).job
        with self._lock:
            others = {address: one for address, one in self._known.items() if address not in new}
            for most, which in ((MOST_OF_JOB, "of one job"), (MOST, "in all")):
                group = [address for address, one in others.items() if one.job == job or most == MOST]
                surplus = max(0, len(group) + len(new) - most)
                silent = {address: self.silence(address) for address in group} if surplus else {}
                gone = [address for address in silent if silent[address] >= GONE_SECONDS]
                if len(gone) < surplus:
                    words = f"No room for {len(new)} more servers: {len(group)} are registered."
                    words = f"{words} Expected: at most {most} {which}."
                    raise RefusedError("full", "503 Service Unavailable", words)
                for address in sorted(gone, key=lambda address: -silent[address])[:surplus]:
                    del others[address]
            self._known = {**others, **new}
        self.read = time.time()
        return sum(one.job == job for one in self._known.values())

    def set_runs(self, runs: Mapping[str, View]) -> None:
        """Take the runs of trainers' pages, by address, as they are now."""
        self._runs = runs

    def targets(self) -> Iterator[Target]:
        """Yield all servers, for Prometheus to read."""
        for address, one in self._known.items():
            kind, run = ROLLOUT if one.job.startswith(ENGINES) else TRAINER, self._runs.get(address)
            # rl-insight keeps the name of a job in this label, too
            labels = {**one.labels, "rl_insight_job": one.job, "job": kind, "role": kind}
            if run:
                labels["run"] = run.name
            yield Target(address, labels, over=run is not None and run.state != "running")

    def trainers(self) -> list[str]:
        """Return the addresses of trainers' pages that are alive, the last one that was registered first."""
        pages = [(one.at, address) for address, one in self._known.items() if one.job == TRAINERS]
        pages.sort(key=lambda page: -page[0])
        return [address for _, address in pages if self.silence(address) < GONE_SECONDS]

    def maintain(self) -> None:
        """Forget servers that will not return, and save what changed; called repeatedly."""
        now = time.monotonic()
        if now - self._forgot > FORGET_SECONDS:
            self._forgot = now
            with self._lock:
                gone = [each for each in self._known if self.silence(each) >= FORGOTTEN_SECONDS]
                if gone:
                    self._known = {each: one for each, one in self._known.items() if each not in gone}
        known = self._known
        if known is not self._saved:
            table = {address: asdict(one) for address, one in known.items()}
            self._states.save(PLACE, Saved(None, table, "", 0, []))
            failed = self._states.errors
            self._states.flush()  # at once: a client that was registered does not ask again
            if self._states.errors > failed:
                words = "Registrations cannot be saved: a restart would lose them. The exporter retries."
                self._once.warn("state", words)
            self._saved = known

    def samples(self) -> Iterator[Metric]:
        """Yield how many servers there are, and what became of the requests to register."""
        yield own("registered_servers", "Registered servers.", len(self._known))
        text = "Requests to register, by outcome."
        yield own("registrations_total", text, by_label("result", self._results))


def _json(status: str, document: Mapping[str, Any], *headers: tuple[str, str]) -> Answer:
    return Answer(status, KIND, json.dumps(document).encode(), headers)


class RateLimit:
    """Requests that are left to each client and, as ``None``, to all; what has all of them is forgotten."""

    def __init__(self) -> None:
        self._left: dict[str | None, float] = {}
        self._at = 0.0

    def wait(self, client: str, now: float) -> float:
        """Take one request of a client; returns the seconds until it may come, 0 if it may now."""
        seconds, self._at = now - self._at, now
        for name in list(self._left):
            size, rate = EACH if name is not None else ALL
            self._left[name] += seconds * rate
            if self._left[name] >= size:
                del self._left[name]
        left = {None: self._left.get(None, ALL[0]), client: self._left.get(client, EACH[0])}
        wait = max((1 - left[None]) / ALL[1], (1 - left[client]) / EACH[1], 0.0)
        if not wait:
            self._left.update({name: requests - 1 for name, requests in left.items()})
        return wait


class Token:
    """The token in a file, read at each request, as ``Bearer`` or password of ``Basic``; if any."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._logged, self._thread = path, "", Mount(str(path))
        if path and self._read(path) is not None:
            with suppress(HungError):
                self._log(self._thread.call(lambda: token_files.open_to_all(path)) or "")

    def require(self, headers: Mapping[str, str]) -> None:
        """Let a request pass. Raises RefusedError."""
        if self._path is None:
            return
        token = self._read(self._path)
        if token is None:
            words = "The file with the token cannot be used. Fix: the run exporter's log says what to change."
            raise RefusedError("token_file", "503 Service Unavailable", words)
        scheme, _, word = headers.get("authorization", "").partition(" ")
        shown = word.strip().encode() if scheme.lower() == "bearer" else b""
        if scheme.lower() == "basic":
            with suppress(ValueError):
                shown = base64.b64decode(word.strip(), validate=True).partition(b":")[2]
        if not hmac.compare_digest(shown, token.encode()):
            words = "A token is required. Expected: http://any:TOKEN@host:port as the server's address."
            ask = ("WWW-Authenticate", 'Basic realm="Stepwatch"')
            raise RefusedError("token", "401 Unauthorized", words, ask)

    def _read(self, path: Path) -> str | None:
        """The token; ``None`` if there is none now, which is logged: clients must not see why."""
        try:
            return self._thread.call(lambda: token_files.read(path))
        except (token_files.TokenFileError, HungError) as problem:
            self._log(str(problem))
            return None

    def _log(self, problem: str) -> None:
        if problem and problem != self._logged:
            logger.error("%s", problem)
        self._logged = problem


def read_request(body: bytes, allowed: Allowed) -> dict[str, Registration]:
    """Return the servers of one job that a request asks for, by address. Raises RefusedError."""
    try:
        asked = json.loads(body)
        fault = "" if isinstance(asked, dict) else "not an object"
    except json.JSONDecodeError as problem:
        fault = f"not valid JSON: {problem.msg} in line {problem.lineno}, column {problem.colno}"
    except (ValueError, RecursionError):
        fault = "not valid JSON"
    if fault:
        expected = '{"job_name": "vllm", "targets": [{"target": "10.0.0.7:8000"}]}'
        raise _invalid("malformed", f"The body is {fault}", expected)
    usual = _labels(asked.get("labels"), "labels", {})
    items, job = asked.get("targets"), asked.get("job_name") or TRAINERS
    if not isinstance(items, list) or not items:
        raise _invalid("malformed", "targets is not a list of servers", 'one such as ["10.0.0.7:8000"]')
    if not isinstance(job, str) or not job.isprintable() or len(job) > LONGEST_JOB:
        expected = f"at most {LONGEST_JOB} printable characters"
        raise _invalid("malformed", "job_name is not a valid name", expected)
    servers, now = dict[str, Registration](), time.time()
    for place, item in enumerate(items):
        labels, where, address = usual, f"targets[{place}]", item
        if isinstance(item, dict):
            labels = _labels(item.get("labels"), f"{where}.labels", usual)
            address, where = item.get("target"), f"{where}.target"
        if not isinstance(address, str):
            raise _invalid("malformed", f"{where} is not a server", 'one such as "10.0.0.7:8000"')
        try:
            servers[allowed.checked(address)] = Registration(job, labels, now)
        except AddressError as problem:
            raise RefusedError("address", "400 Bad Request", f"{where}: {problem}.") from None
    return servers


def _labels(found: Any, where: str, usual: Mapping[str, str]) -> dict[str, str]:
    """The labels of an object of the body beside the ``usual`` ones; numbers become text."""
    if found is None:
        return dict(usual)
    if not isinstance(found, Mapping):
        raise _invalid("labels", f"{where} is not an object", 'an object such as {"replica": "0"}')
    labels = {**usual, **found}
    if len(labels) > MOST_LABELS:
        expected = f"at most {MOST_LABELS}, those of all targets included"
        raise _invalid("labels", f"{where} has {len(labels)} labels", expected)
    for name, value in found.items():
        it = f"{where} has a label {name[:LONGEST_NAME]!r}"
        if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name.startswith("__"):
            form = (
                f"names of letters, digits and _, at most {LONGEST_NAME}, that begin with no digit and no __"
            )
            raise _invalid("labels", it, form)
        if name in OURS:
            raise _invalid("labels", f"{it}, which Stepwatch gives", "another name")
        if secret_shapes.names_one(name):
            raise _invalid("labels", f"{it}, named like a secret", _OPEN)
        text = labels[name] = str(value) if isinstance(value, (int, float)) else value
        if not isinstance(text, str) or not text.isprintable() or len(text) > LONGEST_VALUE:
            expected = f"at most {LONGEST_VALUE} printable characters, or a number"
            raise _invalid("labels", f"{where}.{name} is not a valid label value", expected)
        if kind := secret_shapes.found(text):
            raise _invalid("labels", f"{where}.{name} holds what looks like {kind}", _OPEN)
    return labels


def _invalid(result: str, fault: str, expected: str) -> RefusedError:
    return RefusedError(result, "400 Bad Request", f"{fault}. Expected: {expected}.")
