"""rl-insight's server API, as its client asks it, and who may ask."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import Answer, Request
from exporter.http.routes import Table
from exporter.runs.discovery import registrations
from exporter.runs.discovery.address import Allowed
from exporter.runs.discovery.registrations import RefusedError, Registry
from exporter.runs.files import token_files
from exporter.runs.files.mounts import HungError, Mount
from exporter.runs.files.notice import Once
from exporter.runs.files.token_files import TokenFileError

logger = logging.getLogger(__name__)
KIND = "application/json"  # A browser sends this to another site only if that allows it, which we never do
RESULTS = (
    *("accepted", "address", "content_type", "full", "labels"),
    *("malformed", "origin", "rate", "token", "token_file"),
)


@dataclass(slots=True)
class Bucket:
    """Holds ``size`` requests when full and gets back ``rate`` a second; ``at`` in steady seconds."""

    size: float
    rate: float
    left: float
    at: float

    def wait(self, now: float) -> float:
        """Return the seconds until there is one to take; 0 if there is."""
        self.left = min(self.size, self.left + (now - self.at) * self.rate)
        self.at = now
        return max(0.0, (1 - self.left) / self.rate)


class RateLimit:
    """Limits of each client, and of all. Twenty jobs that start at once behind one address stay below it."""

    EACH = (60.0, 1.0)
    ALL = (300.0, 10.0)

    def __init__(self) -> None:
        self._all = Bucket(*self.ALL, left=self.ALL[0], at=0.0)
        self._each: dict[str, Bucket] = {}

    def wait(self, client: str, now: float) -> float:
        """Take one request of a client; returns the seconds until it may come, 0 if it may now."""
        for bucket in self._each.values():
            bucket.wait(now)
        # A full bucket is forgotten; the bucket of all bounds how many others there are.
        self._each = {name: bucket for name, bucket in self._each.items() if bucket.left < bucket.size}
        own = self._each.get(client) or Bucket(*self.EACH, left=self.EACH[0], at=now)
        seconds = own.wait(now) or self._all.wait(now)
        if not seconds:
            own.left -= 1
            self._all.left -= 1
            self._each[client] = own
        return seconds


class Token:
    """The token in a file, read at each request, as ``Bearer`` or password of ``Basic``; if any."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._logged = ""
        self._thread = Mount(str(path))
        if path is None:
            return
        try:
            self._thread.call(lambda: token_files.read(path))
            self._log(self._thread.call(lambda: token_files.open_to_all(path)) or "")
        except (TokenFileError, HungError) as problem:
            self._log(str(problem))

    def require(self, headers: Mapping[str, str]) -> None:
        """Let a request pass. Raises RefusedError."""
        path = self._path
        if path is None:
            return
        try:
            token = self._thread.call(lambda: token_files.read(path))
        except (TokenFileError, HungError) as problem:
            self._log(str(problem))
            words = "The file with the token cannot be used. Fix: the run exporter's log says what to change."
            raise RefusedError("token_file", "503 Service Unavailable", words) from None
        if not hmac.compare_digest(_shown(headers.get("authorization", "")), token.encode()):
            words = "A token is required. Expected: http://any:TOKEN@host:port as the server's address."
            ask = ("WWW-Authenticate", 'Basic realm="Stepwatch"')
            raise RefusedError("token", "401 Unauthorized", words, ask)

    def _log(self, problem: str) -> None:
        """Log once what is wrong with the file; clients must not see it."""
        if problem and problem != self._logged:
            logger.error("%s", problem)
        self._logged = problem


def _shown(authorization: str) -> bytes:
    """Return the token that a header shows; empty if none."""
    scheme, _, word = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return word.strip().encode()
    try:
        login = base64.b64decode(word.strip(), validate=True) if scheme.lower() == "basic" else b""
    except ValueError:
        return b""
    return login.partition(b":")[2]


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
            asked = registrations.read_request(request.body, self._allowed)
            count = self._registry.add(asked)
        except RefusedError as refusal:
            self._results[refusal.result] += 1
            # rl-insight's client does not say why, and its user looks here.
            self._once.warn(refusal.result, f"{request.client} may not register servers: {refusal}")
            return _json(refusal.status, {"detail": str(refusal)}, *refusal.headers)
        self._results["accepted"] += 1
        # No reload and no file: Prometheus polls the targets every few seconds.
        document = {
            "status": "ok",
            "prometheus_reloaded": False,
            "job_name": asked.job,
            "target_count": count,
            "config_file": None,
            "targets_file": None,
        }
        return _json("200 OK", document)

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
