"""rl-insight's server API, as its client asks it, so that verl's `rl_insight` logger works as it is."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

from exporter import secret_shapes
from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import Answer, Request
from exporter.http.routes import Table
from exporter.runs.files import token_files
from exporter.runs.files.mounts import HungError, Mount
from exporter.runs.files.notice import Once
from exporter.runs.files.token_files import TokenFileError
from exporter.runs.targets.registry import (
    LONGEST_JOB,
    LONGEST_NAME,
    LONGEST_VALUE,
    MOST_LABELS,
    TRAINERS,
    RefusedError,
    Registration,
    Registry,
)
from exporter.runs.targets.target import AddressError, Allowed

logger = logging.getLogger(__name__)
KIND = "application/json"  # a browser sends this to another site only if that allows it, which we never do
RESULTS = (
    *("accepted", "address", "content_type", "full", "labels"),
    *("malformed", "origin", "rate", "token", "token_file"),
)
OURS = frozenset({"job", "instance", "role", "severity", "topic"})
"""Rules and messages tell servers apart by these."""
EACH, ALL = (60.0, 1.0), (300.0, 10.0)
"""Requests at once and per second, of one client and of all: twenty jobs may start behind one address."""
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OPEN = "labels without secrets, since everyone who sees an alert reads them"


class Api:
    """Accepts registrations and lists other servers; ``ports`` by rl-insight's names for them."""

    def __init__(
        self, registry: Registry, allowed: Allowed, token: Token, ports: Mapping[str, int | None]
    ) -> None:
        self._registry, self._allowed, self._token = registry, allowed, token
        # Traces are not taken: without this port the client sends none.
        self._services = {"status": "ok", "otlp_port": None, **ports}
        self._rate, self._once = RateLimit(), Once(logger)
        self._results = Counter(dict.fromkeys(RESULTS, 0))

    def routes(self) -> Table:
        """Return the pages, by path."""
        return {
            "/healthz": {"GET": lambda _: _json("200 OK", {"status": "ok"})},
            "/api/v1/services": {"GET": lambda _: _json("200 OK", self._services)},
            "/api/v1/prometheus/targets": {"POST": self._register},
        }

    def samples(self) -> Iterator[Metric]:
        """Yield what became of the requests to register."""
        text = "Requests to register, by outcome."
        yield own("registrations_total", text, by_label("result", self._results))

    def _register(self, request: Request) -> Answer:
        try:
            self._admit(request)
            asked = read_request(request.body, self._allowed)
            count = self._registry.add(asked)
        except RefusedError as refusal:
            self._results[refusal.result] += 1
            # rl-insight's client does not say why, and its user looks here.
            self._once.warn(refusal.result, f"{request.client} may not register servers: {refusal}")
            return _json(refusal.status, {"detail": str(refusal)}, *refusal.headers)
        self._results["accepted"] += 1
        document = {"status": "ok", "prometheus_reloaded": False, "job_name": asked[0].job}
        # No reload and no file: Prometheus polls the targets every few seconds.
        return _json("200 OK", {**document, "target_count": count, "config_file": None, "targets_file": None})

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
            try:
                shown = base64.b64decode(word.strip(), validate=True).partition(b":")[2]
            except ValueError:
                shown = b""
        if not hmac.compare_digest(shown, token.encode()):
            words = "A token is required. Expected: http://any:TOKEN@host:port as the server's address."
            ask = ("WWW-Authenticate", 'Basic realm="Stepwatch"')
            raise RefusedError("token", "401 Unauthorized", words, ask)

    def _read(self, path: Path) -> str | None:
        """The token; ``None`` if there is none now, which is logged: clients must not see why."""
        try:
            return self._thread.call(lambda: token_files.read(path))
        except (TokenFileError, HungError) as problem:
            self._log(str(problem))
            return None

    def _log(self, problem: str) -> None:
        if problem and problem != self._logged:
            logger.error("%s", problem)
        self._logged = problem


def read_request(body: bytes, allowed: Allowed) -> list[Registration]:
    """Return the servers of one job that a request asks for, no two with one address. Raises RefusedError."""
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
            address = allowed.checked(address)
        except AddressError as problem:
            raise RefusedError("address", "400 Bad Request", f"{where}: {problem}.") from None
        servers[address] = Registration(address, job, labels, now)
    return list(servers.values())


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
