"""The write door of a hub: accepts only remote write of agents, over TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import re
import socket
import time
from collections import Counter, deque
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientError, ClientSession, ServerTimeoutError, web

from exporter.door import backend_access, write_request
from exporter.door.agent_access import CertificateFiles, Credentials
from exporter.door.proxy import IDLE_SECONDS, Backend, Clients, response
from exporter.door.write_request import MOST_PLAIN, Contents, ForeignSeriesError, FormatError, SizeError
from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import Answer, text

logger = logging.getLogger("exporter.door.agents")

WRITE_PATH = "/api/v1/write"
NODE = "node"
"""The label that all series of an agent have, with its node."""
MOST_BODY = 16 << 20
"""Bytes as they are sent: senders stay far below one MiB."""

MOST_CLIENTS = 192
MOST_HANDSHAKES = 64
"""Together with the connections of people they stay below the usual limit of 1024 open files."""
HANDSHAKE_SECONDS = 10.0
BODY_SECONDS = 120.0
"""The timeout of agents: on a slow link, dropping a request earlier would make the agent send it again."""
MOST_BODIES, MOST_BODIES_OF_NODE = 8, 2
"""Requests whose bodies are in memory. The others wait, and their senders with them."""

DELAY_SECONDS = 15.0
"""The window of the smallest delay: retries and backlogs arrive late."""
SILENT_SECONDS = 60.0
"""After which the delay of the last request says nothing."""
QUIET_SECONDS = 60.0
"""Between two log lines about one reason and node."""

MOST_AHEAD_SECONDS = 600.0
"""Prometheus takes no samples that are further ahead of its clock, and does not say so in its metrics."""

_REASONS = ("node_label", "size", "format", "clock")
"""Why a request of a known node is refused; of others it is ``credential`` or ``path``."""
_FIXED = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
"""The headers by which Prometheus decodes; fixed, so that it decodes a body as it was checked."""
_TYPE = re.compile(r"application/x-protobuf(;\s*proto=prometheus\.WriteRequest)?")
_PACKED = re.compile("snappy")


@dataclass(frozen=True)
class Settings:
    """Where to listen, the folder of credentials, and certificate and key, if any, for TLS."""

    listen: str
    port: int
    credentials: Path
    certificate: tuple[Path, Path] | None

    @property
    def url(self) -> str:
        """The URL at which it listens, for agents."""
        host = f"[{self.listen}]" if ":" in self.listen else self.listen
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass
class _Node:
    """The writes of a node, with the delay and the (monotonic) time of each request."""

    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_BODIES_OF_NODE))
    last_write: float | None = None
    samples: int = 0
    received: int = 0
    refused: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(_REASONS, 0)))
    delays: deque[tuple[float, float]] = field(default_factory=deque)

    def accepted(self, contents: Contents, arrived: float) -> None:
        if not contents.samples:  # descriptions of metrics come without any
            return
        self.samples += contents.samples
        self.last_write = max(arrived, self.last_write or 0.0)
        now = time.monotonic()
        if contents.newest is not None:
            self.delays.append((now, arrived - contents.newest))
        while self.delays and self.delays[0][0] < now - DELAY_SECONDS:
            self.delays.popleft()

    def delay(self) -> float | None:
        if not self.delays or self.delays[-1][0] < time.monotonic() - SILENT_SECONDS:
            return None
        return min(delay for _, delay in self.delays)


class _Refused(Exception):  # noqa: N818  (an answer, not a fault)
    def __init__(self, reason: str, answer: Answer, seen: str) -> None:
        self.reason, self.answer, self.seen = reason, answer, seen


class WriteDoor:
    """Forwards writes of known nodes to Prometheus.

    It listens once its certificate, if it has one, can be used: ``look`` is to be called every half second or
    so. It shares the loop with the doors for people, so what takes long runs in a thread, and each thing that
    an agent can use up has a limit of its own.
    """

    def __init__(self, settings: Settings, backend: Backend, password: Path, session: ClientSession) -> None:
        self.clients = Clients(MOST_CLIENTS)
        self._settings, self._backend, self._password = settings, backend, password
        self._session = session
        self._credentials = Credentials(settings.credentials)
        self._nodes: dict[str, _Node] = {}
        self._strangers = Counter({"credential": 0, "path": 0})
        self._bodies = asyncio.Semaphore(MOST_BODIES)
        self._handshakes = asyncio.Semaphore(MOST_HANDSHAKES)
        self._examiner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agents")
        self._runner = web.ServerRunner(
            web.Server(self, handler_cancellation=True, access_log=None, auto_decompress=False),
            shutdown_timeout=0.5,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._certificate = CertificateFiles(*settings.certificate) if settings.certificate else None
        self._said: dict[tuple[str, str], float] = {}

    async def start(self) -> None:
        """Start to serve, as soon as the certificate is usable."""
        await self._runner.setup()
        self.look()

    async def close(self) -> None:
        """Stop to serve."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening:
            self._listening.close()
        await self._runner.cleanup()
        self._examiner.shutdown(wait=False, cancel_futures=True)

    def look(self) -> None:
        """Take a renewed certificate, listen if it does not yet, and drop late clients."""
        if self._certificate:
            self._certificate.look()
        if self._listening is None and (self._certificate is None or self._certificate.current):
            self._listen()
        if server := self._runner.server:
            self.clients.look(server.connections)

    def metrics(self) -> list[Metric]:
        """Return its metrics; those of a node go with its credential."""
        known = sorted(self._credentials.nodes())
        for name in self._nodes.keys() - set(known):
            del self._nodes[name]
        nodes = {name: self._nodes.setdefault(name, _Node()) for name in known}
        writes = {name: node.last_write for name, node in nodes.items() if node.last_write is not None}
        delays = {name: delay for name, node in nodes.items() if (delay := node.delay()) is not None}
        refused: list[tuple[dict[str, str], float]] = [
            ({"node": name, "reason": reason}, count)
            for name, counts in (
                ("", self._strangers),
                *((name, node.refused) for name, node in nodes.items()),
            )
            for reason, count in counts.items()
        ]
        found = [
            own(
                "agent_credentials",
                "Nodes that may write, 1 each.",
                by_label(NODE, dict.fromkeys(known, 1.0)),
            ),
            own(
                "agent_last_write_timestamp_seconds",
                "When samples of a node were last accepted.",
                by_label(NODE, writes),
            ),
            own(
                "agent_delay_seconds",
                "Arrival of a request minus the time of its newest sample, minimum over 15 s.",
                by_label(NODE, delays),
            ),
            own(
                "agent_samples_total",
                "Samples accepted.",
                by_label(NODE, {name: node.samples for name, node in nodes.items()}),
            ),
            own(
                "agent_received_bytes_total",
                "Bytes of request bodies as sent, compressed.",
                by_label(NODE, {name: node.received for name, node in nodes.items()}),
            ),
            own("agent_refused_total", "Requests refused.", list(refused)),
        ]
        if self._certificate and (current := self._certificate.current):
            text = "When the certificate for agents expires."
            found.append(own("agent_certificate_expiry_timestamp_seconds", text, current.expires))
        return found

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        self.clients.within(request.protocol, BODY_SECONDS)
        try:
            return await self._answer(request)
        finally:
            self.clients.within(request.protocol, IDLE_SECONDS)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        arrived, name = time.time(), ""
        try:
            _check_path(request)
            owner = self._credentials.node(request.headers.get("Authorization", ""))
            if owner is None:
                raise _unknown()
            name = owner
            node = self._nodes.setdefault(name, _Node())
            _check_head(request)
            self.clients.within(request.protocol, math.inf)
            async with node.turn, self._bodies:
                self.clients.within(request.protocol, BODY_SECONDS)
                body = await _body(request)
                self.clients.within(request.protocol, math.inf)
                node.received += len(body)
                loop = asyncio.get_running_loop()
                contents, body = await loop.run_in_executor(self._examiner, _examined, body, name)
                _check_time(contents, arrived)
                answer = await self._passed_on(body)
        except _Refused as refused:
            return self._refuse(name, refused, request.remote)
        if answer.code.startswith("2"):
            node.accepted(contents, arrived)
        return response(answer)

    async def _passed_on(self, body: bytes) -> Answer:
        try:
            headers = {**_FIXED, "Authorization": backend_access.authorization(self._password)}
        except OSError as error:
            return self._failure(
                "cannot be queried", f"{self._password}, its password file: {error.strerror}"
            )
        url = f"http://{self._backend.address}{WRITE_PATH}"
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                if answer.status in (401, 404) or 300 <= answer.status < 400:
                    # An agent would drop samples after such an answer, though it is not at fault.
                    return self._failure("accepts no writes", f"it answers {answer.status}")
                reason = await answer.content.read(4096)
                return Answer(f"{answer.status} {answer.reason}", "text/plain; charset=utf-8", reason)
        except ServerTimeoutError:
            return self._failure("does not answer", "in time")
        except ClientError as error:
            return self._failure("does not answer", type(error).__name__)

    def _failure(self, fault: str, cause: str) -> Answer:
        self._say(
            "", "backend", "Prometheus at %s %s (%s). Agents retry.", self._backend.address, fault, cause
        )
        return text(
            "503 Service Unavailable",
            f"The hub's Prometheus {fault}. Expected: the one that `make up` starts there. Fix: run `make "
            "status` on the hub.\n",
        )

    def _refuse(self, name: str, refused: _Refused, client: str | None) -> web.Response:
        (self._nodes[name].refused if name in self._nodes else self._strangers)[refused.reason] += 1
        who = f"node {name}" if name else f"a client at {client}"
        self._say(
            name, refused.reason, "Refused a request from %s (%s): %s.", who, refused.reason, refused.seen
        )
        return response(refused.answer)

    def _say(self, name: str, reason: str, line: str, *values: object) -> None:
        now = time.monotonic()
        if self._said.get((name, reason), -math.inf) < now - QUIET_SECONDS:
            self._said[name, reason] = now
            logger.warning(line, *values)

    def _listen(self) -> None:
        settings = self._settings
        try:
            family, _, _, _, address = socket.getaddrinfo(
                settings.listen, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._listening = socket.create_server(address[:2], family=family, backlog=MOST_CLIENTS)
        except OSError as error:
            self._say(
                "",
                "listen",
                "--agents-listen %s --agents-port %s: cannot listen there: %s. Expected an address of this "
                "machine and a free port. Fix: stop the program that has the port, or choose another one.",
                settings.listen,
                settings.port,
                error.strerror,
            )
            return
        self._listening.setblocking(False)  # noqa: FBT003  (its only argument)
        self._begin(self._accept(self._listening))
        logger.info(
            "%s receives remote write from %s nodes for Prometheus",
            settings.url,
            len(self._credentials.nodes()),
        )

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections, with a limit on unfinished handshakes."""
        # asyncio's own servers take any number of these, each with an open file, for a minute.
        while True:
            await self._handshakes.acquire()
            try:
                client, _ = await asyncio.get_running_loop().sock_accept(listening)
            except OSError as error:  # too many open files, or the client has hung up
                self._handshakes.release()
                self._say("", "accept", "Cannot accept a connection: %s.", error.strerror)
                await asyncio.sleep(0.5)
                continue
            self._begin(self._connect(client))
            await asyncio.sleep(0)  # others have their turn between any two handshakes

    async def _connect(self, client: socket.socket) -> None:
        server = self._runner.server
        try:
            if server is None or len(server.connections) >= MOST_CLIENTS + MOST_HANDSHAKES:
                client.close()
                return
            current = self._certificate and self._certificate.current
            encrypted = current.context if current else None
            await asyncio.get_running_loop().connect_accepted_socket(
                server,
                client,
                ssl=encrypted,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if encrypted else None,
            )
        except OSError as error:  # a handshake that fails or takes too long
            client.close()
            logger.debug("Connection with an agent failed: %s", error)
        finally:
            self._handshakes.release()


def _check_path(request: web.BaseRequest) -> None:
    if request.raw_path != WRITE_PATH:
        answer = text("404 Not Found", f"Not found. Agents write to {WRITE_PATH}, the only path here.\n")
        raise _Refused("path", answer, f"it asks for {request.raw_path[:100]!r}")
    if request.method != "POST":
        answer = text("405 Method Not Allowed", "Expected: POST.\n", ("Allow", "POST"))
        raise _Refused("path", answer, f"its method is {request.method[:20]!r}")


def _check_head(request: web.BaseRequest) -> None:
    for header, expected in (("Content-Type", _TYPE), ("Content-Encoding", _PACKED)):
        found = request.headers.get(header, "")
        if not expected.fullmatch(found):
            answer = text(
                "415 Unsupported Media Type",
                f"{header}: {found[:100]!r} is not supported. Expected: {_FIXED[header]}, remote write 1.0. "
                "Fix: "
                "leave protobuf_message out of remote_write.\n",
            )
            raise _Refused("format", answer, f"{header} is {found[:100]!r}")
    if (request.content_length or 0) > MOST_BODY:
        raise _too_long()


def _check_time(contents: Contents, arrived: float) -> None:
    ahead = (contents.newest or 0.0) - arrived
    if ahead > MOST_AHEAD_SECONDS:
        answer = text(
            "400 Bad Request",
            f"The newest sample is {ahead:.0f} s ahead of the hub's clock. Expected: at most "
            f"{MOST_AHEAD_SECONDS:.0f} s, because Prometheus drops samples further ahead. Fix: correct the "
            "clock of the node or of the hub.\n",
        )
        raise _Refused("clock", answer, f"its newest sample is {ahead:.0f} s ahead of this machine's clock")


async def _body(request: web.BaseRequest) -> bytes:
    if "Expect" in request.headers:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = bytearray()
    try:
        async for part in request.content.iter_any():
            body += part
            if len(body) > MOST_BODY:
                raise _too_long()
    except web.RequestPayloadError:
        raise _malformed("its body is broken") from None
    return bytes(body)


def _examined(body: bytes, node: str) -> tuple[Contents, bytes]:
    """Check a body; returns its contents, and the body to pass on: what was checked, recompressed."""
    try:
        message = write_request.unpack(body)
        contents = write_request.contents(message, NODE.encode(), node.encode())
    except SizeError:
        raise _too_long() from None
    except FormatError as error:
        raise _malformed(str(error)) from None
    except ForeignSeriesError as error:
        answer = text(
            "403 Forbidden",
            f"A series has the label {NODE}: {error}. Expected: {NODE}={node!r} on all series, since the "
            f"token is that of this node. Fix: set `node: {node}` in config.yaml of the agent, or give it "
            "its own token.\n",
        )
        raise _Refused("node_label", answer, f"a series has the label {NODE}: {error}") from None
    return contents, write_request.pack(message)


def _unknown() -> _Refused:
    answer = text(
        "401 Unauthorized",
        "Authorization: not the token of a node. Expected: `Authorization: Bearer TOKEN` with a token that "
        "`make agent NODE=name` printed on the hub. Fix: set hub.token_file on the agent; `make agent "
        "NODE=name RENEW=1` on the hub makes a new token.\n",
        ("WWW-Authenticate", "Bearer"),
    )
    return _Refused("credential", answer, "its token is missing or unknown")


def _too_long() -> _Refused:
    most = f"{MOST_BODY >> 20} MiB, and {MOST_PLAIN >> 20} MiB unpacked"
    answer = text(
        "413 Content Too Large",
        f"The body is too long. Expected: at most {most}. Fix: lower queue_config.max_samples_per_send of "
        "remote_write.\n",
    )
    return _Refused("size", answer, "its body is too long")


def _malformed(problem: str) -> _Refused:
    answer = text(
        "400 Bad Request",
        f"The body is not a write request: {problem}. Expected: remote write 1.0, compressed with snappy. "
        "Fix: send it with Prometheus.\n",
    )
    return _Refused("format", answer, problem)
