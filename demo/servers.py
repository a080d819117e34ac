"""Simulated rollout servers of a run: two vLLMs, which get a batch at the start of each step.

They take minutes for what the log does in a fraction of a second: of such steps a scrape every 15 s would
show nothing. What they share with the log is how much of a step generating takes.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace
from random import Random
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from demo.scenario import RESPONSE_LIMIT
from demo.verl import SHARES

REQUESTS = 64
"""Of a batch, at each server."""
PROMPT_TOKENS, RESPONSE_TOKENS = 96, 240
PREFILL_SECONDS = 0.08
_SPREAD = 0.55
"""Standard deviation of the logarithm of a response's length: the longest take four times the median."""

FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1),
    *(2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
NEXT_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1),
    *(2.5, 5, 7.5, 10, 20, 40, 80),
)
REQUEST = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""vLLM's buckets."""


class Size(NamedTuple):
    """What a server can do.

    ``seats``: requests in execution at a time; ``cache``: tokens; ``pace``: seconds from a token to the
    next; ``hits``: the share of prompt tokens found in the prefix cache; ``preempted``: the share of
    requests that are computed again.
    """

    seats: int
    cache: int
    pace: float
    hits: float
    preempted: float


SIZES = (Size(REQUESTS, 20_000, 0.04, 0.85, 0), Size(24, 6_000, 0.04, 0.3, 0.2))
"""The second has too little memory: its cache is full, requests wait, and the whole step waits for it."""


@dataclass
class Request:
    """One response: when it is sent, executed and done, in the simulation's seconds."""

    sent: float
    starts: float
    ends: float
    tokens: int
    preempted: bool
    generated: int = 0


class Engine:
    """One server with vLLM's metrics, on a free port of ``host``."""

    def __init__(self, host: str, size: Size) -> None:
        self._size = size
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        registry = CollectorRegistry()
        names = {"labelnames": ("engine", "model_name"), "registry": registry}
        labels = {"engine": "0", "model_name": "simulated"}

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"vllm:{name}", text, **names).labels(**labels)  # type: ignore[arg-type]

        def counter(name: str, text: str) -> Counter:
            return Counter(f"vllm:{name}", text, **names).labels(**labels)  # type: ignore[arg-type]

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            made = Histogram(f"vllm:{name}", text, buckets=buckets, **names)  # type: ignore[arg-type]
            return made.labels(**labels)

        self._requests = gauge("num_requests_running", "Requests in execution.")
        self._queue = gauge("num_requests_waiting", "Requests in the queue.")
        self._cache = gauge("kv_cache_usage_perc", "KV cache in use; 1 is all of it.")
        self._preemptions = counter("num_preemptions", "Preemptions.")
        self._looked_up = counter("prefix_cache_queries", "Tokens looked up in the prefix cache.")
        self._found = counter("prefix_cache_hits", "Tokens found in the prefix cache.")
        self._prompts = counter("prompt_tokens", "Prompt tokens.")
        self._generated = counter("generation_tokens", "Generated tokens.")
        self._first = histogram("time_to_first_token_seconds", "Until the first token.", FIRST_TOKEN)
        self._next = histogram("inter_token_latency_seconds", "Between tokens.", NEXT_TOKEN)
        self._request = histogram("e2e_request_latency_seconds", "Whole requests.", REQUEST)
        self._length = histogram("request_generation_tokens", "Tokens of responses.", TOKENS)
        ended = Counter(
            "vllm:request_success", "Requests by their end.", ("finished_reason", *labels), registry=registry
        )
        self._ended = {
            why: ended.labels(finished_reason=why, **labels) for why in ("stop", "length", "abort")
        }
        server, _ = start_http_server(0, host, registry)
        self.port: int = server.server_port

    def send(self, now: float, rng: Random) -> float:
        """Take a batch, and return when its last response is done."""
        batch = list(self._plan(now, rng))
        self._waiting.extend(batch)
        return max(request.ends for request in batch)

    def _plan(self, now: float, rng: Random) -> Iterator[Request]:
        """The batch's requests in the order in which they start: as soon as one before them is done."""
        seats = [now] * self._size.seats
        heapify(seats)
        for _ in range(REQUESTS):
            tokens = min(RESPONSE_LIMIT, round(RESPONSE_TOKENS * rng.lognormvariate(0, _SPREAD)))
            preempted = rng.random() < self._size.preempted
            took = PREFILL_SECONDS + tokens * self._size.pace * (
                1.5 if preempted else rng.uniform(0.95, 1.05)
            )
            starts = seats[0]
            heapreplace(seats, starts + took)
            yield Request(now, starts, starts + took, tokens, preempted)

    def advance(self, now: float) -> None:
        """Bring the metrics to this time."""
        while self._waiting and self._waiting[0].starts <= now:
            request = self._waiting.popleft()
            self._running.append(request)
            self._prompts.inc(PROMPT_TOKENS)
            self._looked_up.inc(PROMPT_TOKENS)
            self._found.inc(PROMPT_TOKENS * self._size.hits)
            self._first.observe(request.starts - request.sent + PREFILL_SECONDS)
        for request in self._running:
            self._generate(request, now)
        self._running = [request for request in self._running if request.ends > now]
        used = sum(PROMPT_TOKENS + request.generated for request in self._running)
        self._requests.set(len(self._running))
        self._queue.set(len(self._waiting))
        self._cache.set(min(1, used / self._size.cache))

    def _generate(self, request: Request, now: float) -> None:
        took = request.ends - request.starts
        generated = min(request.tokens, int(request.tokens * (now - request.starts) / took))
        self._generated.inc(generated - request.generated)
        for _ in range(generated - request.generated):
            self._next.observe(took / request.tokens)
        request.generated = generated
        if request.ends <= now:
            self._preemptions.inc(request.preempted)
            self._request.observe(request.ends - request.sent)
            self._length.observe(request.tokens)
            self._ended["length" if request.tokens == RESPONSE_LIMIT else "stop"].inc()


def reached(listen: str) -> str:
    """Return by what others reach it: in a container, all addresses are listened on."""
    return socket.gethostbyname(socket.gethostname()) if listen == "0.0.0.0" else listen  # noqa: S104


class Servers:
    """The servers of a run; ``listen`` is where they listen, the same ``seed`` gives the same batches.

    Raises:
        OSError: the address is not available.
    """

    def __init__(self, listen: str, seed: int) -> None:
        self._dice = Random(f"{seed} servers")  # noqa: S311 - a simulation, no secret
        self._now = self._next = 0.0
        self._engines = [Engine(listen, size) for size in SIZES]
        self.addresses = tuple(f"{reached(listen)}:{engine.port}" for engine in self._engines)
        """As a trainer prints them."""

    def tick(self, seconds: float) -> None:
        """Let this time pass."""
        self._now += seconds
        if self._now >= self._next:
            done = max(engine.send(self._now, self._dice) for engine in self._engines)
            self._next = self._now + (done - self._now) / SHARES["gen"]
        for engine in self._engines:
            engine.advance(self._now)
