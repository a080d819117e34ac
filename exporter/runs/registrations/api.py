"""rl-insight's server API, as its client asks it."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from exporter.http.exposition import Family, Sample
from exporter.http.message import Answer, Request
from exporter.http.routes import Table
from exporter.runs.discovery.address import Allowed
from exporter.runs.files.notice import Once
from exporter.runs.registrations import registration
from exporter.runs.registrations.registration import RefusedError
from exporter.runs.registrations.registry import Registry
from exporter.runs.registrations.token import Token


@dataclass(slots=True)
class Bucket:
    """Holds ``size`` requests when full, and gets back ``rate`` of them each second.

    ``left`` is what it held ``at`` that time, in seconds of the steady clock.
    """

    size: float
    rate: float
    left: float
    at: float

    def wait(self, now: float) -> float:
        """Seconds until there is one to take; 0 if there is."""
        self.left = min(self.size, self.left + (now - self.at) * self.rate)
        self.at = now
        return max(0.0, (1 - self.left) / self.rate)

    @property
    def full(self) -> bool:
        """Was nothing taken of late?"""
        return self.left >= self.size


class RateLimit:
    """Limits of each client, and of all together.

    A client beyond its own takes nothing from the others. Twenty jobs that start at once behind one
    address stay below it: each registers three times or so, and never again.
    """

    EACH = (60.0, 1.0)
    ALL = (300.0, 10.0)

    def __init__(self) -> None:
        self._all = Bucket(*self.ALL, left=self.ALL[0], at=0.0)
        self._each: dict[str, Bucket] = {}

    def wait(self, client: str, now: float) -> float:
        """Take one request of a client; returns the seconds until it may come, 0 if it may now."""
        self._forget(now)
        own = self._each.get(client) or Bucket(*self.EACH, left=self.EACH[0], at=now)
        seconds = own.wait(now) or self._all.wait(now)
        if not seconds:
            own.left -= 1
            self._all.left -= 1
            self._each[client] = own
        return seconds

    def _forget(self, now: float) -> None:
        """Those who have their whole share again; the share of all bounds how many others there are."""
        for bucket in self._each.values():
            bucket.wait(now)
        self._each = {client: bucket for client, bucket in self._each.items() if not bucket.full}


logger = logging.getLogger(__name__)

KIND = "application/json"
"""A browser sends this to another site only if that allows it, which we never do."""

RESULTS = (
    *("accepted", "address", "content_type", "full", "labels"),
    *("malformed", "origin", "rate", "token", "token_file"),
)


class Api:
    """Takes registrations, and tells clients what else there is to talk to.

    ``ports`` are those of the stack's pages, by rl-insight's names for them; ``None`` for what is not
    there.
    """

    def __init__(
        self,
        registry: Registry,
        allowed: Allowed,
        token: Token,
        ports: Mapping[str, int | None],
    ) -> None:
        self._registry, self._allowed, self._token = registry, allowed, token
        # Traces are not taken: without this port the client sends none.
        self._services = {"status": "ok", "otlp_port": None, **ports}
        self._rate, self._once = RateLimit(), Once(logger)
        self._results = Counter(dict.fromkeys(RESULTS, 0))

    def routes(self) -> Table:
        """The pages, by path."""
        return {
            "/healthz": {"GET": lambda _: _json("200 OK", {"status": "ok"})},
            "/api/v1/services": {"GET": lambda _: _json("200 OK", self._services)},
            "/api/v1/prometheus/targets": {"POST": self._register},
        }

    def samples(self) -> Iterator[tuple[Family, list[Sample]]]:
        """What became of the requests to register."""
        family = Family(
            "stepwatch_registrations_total", "counter", "Requests to register, by what came of it."
        )
        yield family, [({"result": result}, count) for result, count in self._results.items()]

    def _register(self, request: Request) -> Answer:
        try:
            answer = _json("200 OK", self._registered(request))
        except RefusedError as refusal:
            self._results[refusal.result] += 1
            # rl-insight's client does not say why, and its user looks here.
            self._once.warn(refusal.result, f"{request.client} may not register servers: {refusal}")
            return _json(refusal.status, {"detail": str(refusal)}, *refusal.headers)
        self._results["accepted"] += 1
        return answer

    def _registered(self, request: Request) -> dict[str, Any]:
        self._heed(request.client)
        _require_program(request.headers)
        self._token.require(request.headers)
        asked = registration.read(request.body, self._allowed)
        # Nothing is reloaded, nor is a file written: Prometheus asks for the targets every few seconds.
        return {
            "status": "ok",
            "prometheus_reloaded": False,
            "job_name": asked.job,
            "target_count": self._registry.add(asked),
            "config_file": None,
            "targets_file": None,
        }

    def _heed(self, client: str) -> None:
        """Each request counts, refused ones too: a token is not to be guessed."""
        seconds = self._rate.wait(client, time.monotonic())
        if seconds:
            words = f"Too many requests. Expected: the next one in {ceil(seconds)} s."
            retry = ("Retry-After", str(ceil(seconds)))
            raise RefusedError("rate", "429 Too Many Requests", words, retry)


def _require_program(headers: Mapping[str, str]) -> None:
    """No page of a browser may register: any site that someone visits could."""
    if "origin" in headers:
        raise RefusedError("origin", "403 Forbidden", "No page of a browser may ask for this.")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
        words = f"Expected: a body of the Content-Type {KIND}."
        raise RefusedError("content_type", "415 Unsupported Media Type", words)


def _json(status: str, document: Mapping[str, Any], *headers: tuple[str, str]) -> Answer:
    return Answer(status, KIND, json.dumps(document).encode(), headers)
