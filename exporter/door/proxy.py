"""Forward requests to a program behind the door, unless a page of another origin made a browser send them.

The check is stricter than that of the exporters, since here one request can mute every alert. A page counts
as foreign unless it came from the requested address or from an origin of ``links``; another port of
127.0.0.1 is foreign too.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerTimeoutError,
    TCPConnector,
    web,
)
from aiohttp.web import RequestHandler
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from exporter.door import backend_access
from exporter.http.message import BAD_REQUEST, Answer, text
from exporter.http.routes import OWN_NAMES, is_known, refusal

_ORIGIN = re.compile(r"(https?)://(.+)")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

_NOT_FROM_ELSEWHERE = text(
    "403 Forbidden",
    "Sec-Fetch-Site: a web page of another origin sent this request. Expected: a followed link, or a request "
    "from a page of this address. Fix: open the address itself; in a program, omit the header.\n",
)


class OriginCheck:
    """Detects requests of foreign pages.

    ``origins`` are those of ``links`` in config.yaml, such as ``https://prometheus.example.org``, in
    lower case and without a default port; they may be replaced at any time.
    """

    def __init__(self, origins: Collection[str]) -> None:
        self.origins = origins

    def refusal(self, method: str, headers: CIMultiDictProxy[str]) -> Answer | None:
        """Return why a request is refused, ``None`` if it is not."""
        hosts, origins = headers.getall("Host", ["localhost"]), headers.getall("Origin", [])
        if len(hosts) > 1 or len(origins) > 1:
            return BAD_REQUEST
        host = hosts[0]
        names = {name for origin in self.origins if (name := urlsplit(origin).hostname)}
        if not is_known(host, OWN_NAMES | names):
            return refusal("Host", host)
        if origins:
            return self._judged(origins[0], host.lower())
        # Browsers name no origin when they load a picture or a script, whose query may be an expensive one,
        # nor a frame, in which a reader can be led to press a button. A link that is followed is harmless:
        # neither program changes anything by GET.
        mode, destination = headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")
        followed = method in ("GET", "HEAD") and (mode, destination) == ("navigate", "document")
        own = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        return None if own or followed else _NOT_FROM_ELSEWHERE

    def _judged(self, origin: str, host: str) -> Answer | None:
        found = _ORIGIN.fullmatch(origin.lower())
        if found:
            default = _DEFAULT_PORTS[found[1]]
            if found[0] in self.origins or found[2].removesuffix(default) == host.removesuffix(default):
                return None
        return text(
            "403 Forbidden",
            f"Origin: {origin[:200]!r} is not the origin of this address. Expected: the requested address "
            "with its port, or a URL below `links` in config.yaml. Fix: open that address itself, or add the "
            "URL that you use to `links` and run `make up`.\n",
        )


MOST_BODY = 1 << 20
"""Bytes; a silence or a query has some hundred."""
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 150.0
"""Seconds between two parts of an answer; Prometheus itself gives up a query after 120."""
IDLE_BACKEND_SECONDS = 15.0
"""How long an unused connection is kept: both programs keep theirs longer."""

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
_REPLACED = frozenset({"host", "authorization", "content-length", "expect"})

_NO_WRITES = text(
    "403 Forbidden",
    "This address accepts no samples. Expected: the hub's port for agents, 9415 by default. Fix: set hub.url "
    "in the agent's config.yaml.\n",
)

MOST_CLIENTS = 256
HEAD_SECONDS = 15.0
"""Seconds from a connection's start to its first request."""
BODY_SECONDS = 30.0
IDLE_SECONDS = 60.0
"""Seconds from an answer to the next request."""
WRITE_SECONDS = 60.0
"""Seconds for a client to take the next part of an answer."""


class Clients:
    """The connections of the door, each with its deadline.

    aiohttp waits for a request's head without a limit. ``dropped`` counts the connections that were closed:
    ``slow``, or ``surplus`` when there were more than ``most``.
    """

    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self.dropped: Counter[str] = Counter({"slow": 0, "surplus": 0})
        self._until: dict[RequestHandler, float] = {}

    def within(self, client: RequestHandler, seconds: float) -> None:
        """Set a client's deadline in seconds from now; ``inf`` while it waits for an answer."""
        self._until[client] = time.monotonic() + seconds

    def look(self, present: Sequence[RequestHandler]) -> None:
        """Drop connections past their deadline; called about every second."""
        now = time.monotonic()
        self._until = {client: self._until.get(client, now + HEAD_SECONDS) for client in present}
        # Those that wait for us come last: they have asked for something.
        for client in sorted(self._until, key=self._until.__getitem__):
            late = self._until[client] < now
            if not late and len(self._until) <= self._most:
                break
            del self._until[client]
            self.dropped["slow" if late else "surplus"] += 1
            if client.transport:
                client.transport.abort()  # close() would wait for the client to read


@dataclass(frozen=True)
class Backend:
    """A program behind the door: its name as a label and to people, and its host:port."""

    name: str
    title: str
    address: str


def session() -> ClientSession:
    """Return what connects to the backends; bytes pass as they are, and clients alone are counted."""
    return ClientSession(
        connector=TCPConnector(limit=0, keepalive_timeout=IDLE_BACKEND_SECONDS),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )


@dataclass
class Proxy:
    """Serves one backend.

    ``password`` is the file with the backends' password, read for each request: a new one is used at once.
    ``own`` are the door's own pages. ``answered`` counts answers by status code, ``failures`` requests
    that the backend did not answer.
    """

    backend: Backend
    password: Path
    check: OriginCheck
    clients: Clients
    session: ClientSession
    own: Mapping[str, Callable[[], Answer]]
    answered: Counter[str] = field(default_factory=Counter)
    failures: int = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        self.clients.within(request.protocol, math.inf)
        try:
            response = await self._answer(request)
        finally:
            self.clients.within(request.protocol, IDLE_SECONDS)
        self.answered[str(response.status)] += 1
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if not request.raw_path.startswith("/"):
            return response(BAD_REQUEST)
        if refused := self.check.refusal(request.method, request.headers):
            return response(refused)
        # With a hub's flag Prometheus takes samples there: agents' come through the write door alone.
        if re.sub("/+", "/", request.path).rstrip("/") == "/api/v1/write":
            return response(_NO_WRITES)
        if own := self.own.get(request.path):
            return response(own())
        self.clients.within(request.protocol, BODY_SECONDS)
        if "Expect" in request.headers:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return response(
                text("413 Content Too Large", f"Expected: a body of at most {MOST_BODY} bytes.\n")
            )
        self.clients.within(request.protocol, math.inf)
        return await self._exchange(request, body)

    async def _exchange(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        try:
            authorization = backend_access.authorization(self.password)
        except OSError as error:
            return self._failure(
                "502 Bad Gateway", f"cannot be queried: its password file {self.password}: {error.strerror}"
            )
        headers = _end_to_end(request.headers, _REPLACED)
        headers["Authorization"] = authorization
        url = URL(f"http://{self.backend.address}{request.raw_path}", encoded=True)
        try:
            answer = await self.session.request(
                request.method, url, headers=headers, data=body or None, allow_redirects=False
            )
        except ServerTimeoutError:
            return self._failure("504 Gateway Timeout", "does not answer in time")
        except ClientError as error:
            number = error.os_error.errno if isinstance(error, ClientConnectorError) else None
            cause = os.strerror(number) if number else "it closed the connection"
            return self._failure("502 Bad Gateway", f"does not answer: {cause}")
        async with answer:
            if answer.status == web.HTTPUnauthorized.status_code:
                return self._failure("502 Bad Gateway", f"refuses the password in {self.password}")
            return await self._pass_back(request, answer)

    async def _pass_back(self, request: web.BaseRequest, answer: ClientResponse) -> web.StreamResponse:
        headers = _end_to_end(answer.headers, frozenset())
        for name in [name for name in headers if name.lower().startswith("access-control-")]:
            headers.popall(name, None)
        # In a frame of another page, a reader could be led to press a button.
        headers.setdefault("X-Frame-Options", "SAMEORIGIN")
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
        try:
            await response.prepare(request)
            while part := await answer.content.readany():
                self.clients.within(request.protocol, WRITE_SECONDS)
                await response.write(part)
                self.clients.within(request.protocol, math.inf)
        except ClientError:  # to end it properly would make half an answer look whole
            self.failures += 1
            if request.transport:
                request.transport.abort()
        return response

    def _failure(self, status: str, fault: str) -> web.Response:
        self.failures += 1
        name, address = self.backend.name, self.backend.address
        return response(
            text(
                status,
                f"{self.backend.title} at {address} {fault}. Expected: the one that `make up` starts. Fix: "
                f"run `make up`, which restarts it; `make status` shows the state of {name} and its log (in "
                f"containers: `docker compose logs {name}`).\n",
            )
        )


def _end_to_end(headers: CIMultiDictProxy[str], more: frozenset[str]) -> CIMultiDict[str]:
    """Return the end-to-end headers, without those in ``more``."""
    named = {name.strip().lower() for each in headers.getall("Connection", []) for name in each.split(",")}
    left = _HOP_BY_HOP | named | more
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in left)


def response(answer: Answer) -> web.Response:
    """Return an answer as aiohttp's response."""
    status, _, reason = answer.status.partition(" ")
    headers = {"Content-Type": answer.kind, **dict(answer.headers)}
    return web.Response(status=int(status), reason=reason, body=answer.body, headers=headers)
