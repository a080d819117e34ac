"""The write door of a hub: accepts only remote write of agents, over TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import re
import socket
import time
from argparse import Namespace
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from aiohttp import ClientError, ClientSession, ClientTimeout, ServerTimeoutError, TCPConnector, web
from aiohttp.web import RequestHandler

from exporter import credentials
from exporter.door import write_request
from exporter.door.agent_access import CertificateFiles, Credentials
from exporter.door.write_request import MOST_PLAIN, Contents, ForeignSeriesError, FormatError, SizeError
from exporter.http.exposition import Metric, Sample, by_label, own
from exporter.http.message import Answer, text

logger = logging.getLogger("exporter.door.agents")

WRITE_PATH = "/api/v1/write"
NODE = "node"
"""The label that all series of an agent have, with its node."""
MOST_BODY = 16 << 20
"""Bytes as they are sent: senders stay far below one MiB."""
MOST_CLIENTS = 192
MOST_HANDSHAKES = 64
"""Together with the other open files they stay below the usual limit of 1024."""
HEAD_SECONDS = 15.0
"""From a connection's start to its first request."""
HANDSHAKE_SECONDS = 10.0
BODY_SECONDS = 120.0
"""The timeout of agents: on a slow link, dropping a request earlier would make the agent send it again."""
IDLE_SECONDS = 60.0
"""From an answer to the next request."""
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

_PACKED = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
_FIXED = {**_PACKED, "X-Prometheus-Remote-Write-Version": "0.1.0"}
"""The headers by which Prometheus decodes; fixed, so that it decodes a body as it was checked."""
_TYPE = re.compile(r"application/x-protobuf(;\s*proto=prometheus\.WriteRequest)?")


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def response(answer: Answer) -> web.Response:
    """Return an answer as aiohttp's response."""
    status, _, reason = answer.status.partition(" ")
    headers = {"Content-Type": answer.kind, **dict(answer.headers)}
    return web.Response(status=int(status), reason=reason, body=answer.body, headers=headers)


class _Clients:
    """Connections with their deadlines: aiohttp waits for a request's head without a limit."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter({"slow": 0, "surplus": 0})
        self._until: dict[RequestHandler, float] = {}

    def within(self, client: RequestHandler, seconds: float) -> None:
        """Set a client's deadline in seconds from now; ``inf`` while it waits for an answer."""
        self._until[client] = time.monotonic() + seconds

    def look(self, present: list[RequestHandler]) -> None:
        """Drop connections past their deadline, and surplus ones; called about every second."""
        now = time.monotonic()
        self._until = {client: self._until.get(client, now + HEAD_SECONDS) for client in present}
        # Those that wait for us come last: they have asked for something.
        for client in sorted(self._until, key=self._until.__getitem__):
            late = self._until[client] < now
            if not late and len(self._until) <= MOST_CLIENTS:
                break
            del self._until[client]
            self.dropped["slow" if late else "surplus"] += 1
            if client.transport:
                client.transport.abort()  # close() would wait for the client to read


@dataclass
class _Node:
    """The writes of a node, with the delay and the (monotonic) time of each request."""

    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_BODIES_OF_NODE))
    last_write: float | None = None
    samples: int = 0
    received: int = 0
    refused: Counter[str] = field(
        default_factory=lambda: Counter({"node_label": 0, "size": 0, "format": 0, "clock": 0})
    )
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


_OF_NODE: Mapping[str, tuple[str, Callable[[_Node], float | None]]] = {
    "credentials": ("Nodes that may write, 1 each.", lambda _: 1.0),
    "last_write_timestamp_seconds": (
        "When samples of a node were last accepted.",
        lambda node: node.last_write,
    ),
    "delay_seconds": (
        "Arrival of a request minus the time of its newest sample, minimum over 15 s.",
        _Node.delay,
    ),
    "samples_total": ("Samples accepted.", lambda node: node.samples),
    "received_bytes_total": ("Bytes of request bodies as sent, compressed.", lambda node: node.received),
}
"""The metrics of a node."""


class _Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """``seen`` is what the log says."""

    def __init__(self, reason: str, status: str, words: str, seen: str, *headers: tuple[str, str]) -> None:
        self.reason, self.seen = reason, seen
        self.answer = text(status, f"{words}\n", *headers)


class WriteDoor:
    """Forwards writes of known nodes to Prometheus.

    It listens once its certificate, if it has one, can be used: ``look`` is to be called every half second or
    so. What takes long runs in a thread, and each thing that an agent can use up has a limit of its own.
    """

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._url = f"http://{options.prometheus}{WRITE_PATH}"
        self._clients = _Clients()
        self._credentials = Credentials(options.agents_credentials)
        self._nodes: dict[str, _Node] = {}
        self._strangers = Counter({"credential": 0, "path": 0})
        self._bodies = asyncio.Semaphore(MOST_BODIES)
        self._handshakes = asyncio.Semaphore(MOST_HANDSHAKES)
        self._examiner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agents")
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=15),  # Prometheus keeps its side longer
            timeout=ClientTimeout(total=None, sock_connect=5, sock_read=150),
        )
        server = web.Server(self._serve, handler_cancellation=True, access_log=None, auto_decompress=False)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        cert, key = options.agents_cert, options.agents_key
        self._certificate = CertificateFiles(cert, key) if cert else None
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
        await self._session.close()
        self._examiner.shutdown(wait=False, cancel_futures=True)

    def look(self) -> None:
        """Take a renewed certificate, listen if it does not yet, and drop late clients."""
        if self._certificate:
            self._certificate.look()
        if self._listening is None and (self._certificate is None or self._certificate.current):
            self._listen()
        if server := self._runner.server:
            self._clients.look(server.connections)

    def metrics(self) -> list[Metric]:
        """Return its metrics; those of a node go with its credential."""
        known = sorted(self._credentials.nodes())
        for name in self._nodes.keys() - set(known):
            del self._nodes[name]
        nodes = {name: self._nodes.setdefault(name, _Node()) for name in known}
        found = [
            own(
                f"agent_{name}",
                words,
                by_label(NODE, {key: at for key, node in nodes.items() if (at := value(node)) is not None}),
            )
            for name, (words, value) in _OF_NODE.items()
        ]
        refused: list[Sample] = [
            ({"node": name, "reason": reason}, count)
            for name, counts in [
                ("", self._strangers),
                *((name, node.refused) for name, node in nodes.items()),
            ]
            for reason, count in counts.items()
        ]
        found += [
            own("agent_refused_total", "Requests refused.", refused),
            own("door_clients_dropped_total", "Clients dropped.", by_label("reason", self._clients.dropped)),
        ]
        if self._certificate and (current := self._certificate.current):
            words = "When the certificate for agents expires."
            found.append(own("agent_certificate_expiry_timestamp_seconds", words, current.expires))
        return found

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self._clients.within(request.protocol, BODY_SECONDS)
        name = ""
        try:
            name = self._sender(request)
            return response(await self._write(request, name))
        except _Refused as refused:
            counts = self._nodes[name].refused if name in self._nodes else self._strangers
            counts[refused.reason] += 1
            who = f"node {name}" if name else f"a client at {request.remote}"
            line = "Refused a request from %s (%s): %s."
            self._say((name, refused.reason), line, who, refused.reason, refused.seen)
            return response(refused.answer)
        finally:
            self._clients.within(request.protocol, IDLE_SECONDS)

    def _sender(self, request: web.BaseRequest) -> str:
        """Return the node that writes."""
        if request.raw_path != WRITE_PATH:
            words = f"Not found. Agents write to {WRITE_PATH}, the only path here."
            raise _Refused("path", "404 Not Found", words, f"it asks for {request.raw_path[:100]!r}")
        if request.method != "POST":
            seen = f"its method is {request.method[:20]!r}"
            raise _Refused("path", "405 Method Not Allowed", "Expected: POST.", seen, ("Allow", "POST"))
        if name := self._credentials.node(request.headers.get("Authorization", "")):
            return name
        raise _Refused(
            "credential",
            "401 Unauthorized",
            "Authorization: not the token of a node. Expected: `Authorization: Bearer TOKEN` with a token "
            "that `make agent NODE=name` printed on the hub. Fix: set hub.token_file on the agent; `make "
            "agent NODE=name RENEW=1` on the hub makes a new token.",
            "its token is missing or unknown",
            ("WWW-Authenticate", "Bearer"),
        )

    async def _write(self, request: web.BaseRequest, name: str) -> Answer:
        """Check a request of a node, and have Prometheus take it."""
        arrived, node = time.time(), self._nodes.setdefault(name, _Node())
        for header, expected in _PACKED.items():
            found = request.headers.get(header, "")
            if not (_TYPE.fullmatch(found) if header == "Content-Type" else found == expected):
                words = (
                    f"{header}: {found[:100]!r} is not supported. Expected: {expected}, remote write 1.0. "
                )
                raise _Refused(
                    "format",
                    "415 Unsupported Media Type",
                    f"{words}Fix: leave protobuf_message out of remote_write.",
                    f"{header} is {found[:100]!r}",
                )
        if (request.content_length or 0) > MOST_BODY:
            raise _too_long()
        self._clients.within(request.protocol, math.inf)
        async with node.turn, self._bodies:
            self._clients.within(request.protocol, BODY_SECONDS)
            body = await _body(request)
            self._clients.within(request.protocol, math.inf)
            node.received += len(body)
            loop = asyncio.get_running_loop()
            contents, body = await loop.run_in_executor(self._examiner, _examined, body, name)
            ahead = (contents.newest or 0.0) - arrived
            if ahead > MOST_AHEAD_SECONDS:
                raise _Refused(
                    "clock",
                    "400 Bad Request",
                    f"The newest sample is {ahead:.0f} s ahead of the hub's clock. Expected: at most "
                    f"{MOST_AHEAD_SECONDS:.0f} s, because Prometheus drops samples further ahead. Fix: "
                    "correct the clock of the node or of the hub.",
                    f"its newest sample is {ahead:.0f} s ahead of this machine's clock",
                )
            answer = await self._forward(body)
        if answer.code.startswith("2"):
            node.accepted(contents, arrived)
        return answer

    async def _forward(self, body: bytes) -> Answer:
        try:
            headers = {**_FIXED, **credentials.login(self._options.password_file)}
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status not in (401, 404) and not 300 <= answer.status < 400:
                    reason = await answer.content.read(4096)
                    return Answer(f"{answer.status} {answer.reason}", "text/plain; charset=utf-8", reason)
                # An agent would drop samples after such an answer, though it is not at fault.
                fault, cause = "accepts no writes", f"it answers {answer.status}"
        except ServerTimeoutError:
            fault, cause = "does not answer", "in time"
        except ClientError as error:
            fault, cause = "does not answer", type(error).__name__
        except OSError as error:
            fault = "cannot be queried"
            cause = f"{self._options.password_file}, its password file: {error.strerror}"
        line = "Prometheus at %s %s (%s). Agents retry."
        self._say(("", "backend"), line, self._options.prometheus, fault, cause)
        return text(
            "503 Service Unavailable",
            f"The hub's Prometheus {fault}. Expected: the one that `make up` starts there. Fix: run `make "
            "status` on the hub.\n",
        )

    def _say(self, topic: tuple[str, str], line: str, *values: object) -> None:
        now = time.monotonic()
        if self._said.get(topic, -math.inf) < now - QUIET_SECONDS:
            self._said[topic] = now
            logger.warning(line, *values)

    def _listen(self) -> None:
        host, port = self._options.agents_listen, self._options.agents_port
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._listening = socket.create_server(address[:2], family=family, backlog=MOST_CLIENTS)
        except OSError as error:
            line = (
                "--agents-listen %s --agents-port %s: cannot listen there: %s. Expected an address of this "
                "machine and a free port. Fix: stop the program that has the port, or choose another one."
            )
            self._say(("", "listen"), line, host, port, error.strerror)
            return
        self._listening.setblocking(False)  # noqa: FBT003  (its only argument)
        self._begin(self._accept(self._listening))
        scheme, shown = "https" if self._certificate else "http", f"[{host}]" if ":" in host else host
        line = "%s://%s:%s receives remote write from %s nodes for Prometheus"
        logger.info(line, scheme, shown, port, len(self._credentials.nodes()))

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
                self._say(("", "accept"), "Cannot accept a connection: %s.", error.strerror)
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
            timeout = HANDSHAKE_SECONDS if encrypted else None
            await asyncio.get_running_loop().connect_accepted_socket(
                server, client, ssl=encrypted, ssl_handshake_timeout=timeout
            )
        except OSError as error:  # a handshake that fails or takes too long
            client.close()
            logger.debug("Connection with an agent failed: %s", error)
        finally:
            self._handshakes.release()


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
        raise _Refused(
            "node_label",
            "403 Forbidden",
            f"A series has the label {NODE}: {error}. Expected: {NODE}={node!r} on all series, since the "
            f"token is that of this node. Fix: set `node: {node}` in config.yaml of the agent, or give it "
            "its own token.",
            f"a series has the label {NODE}: {error}",
        ) from None
    return contents, write_request.pack(message)


def _too_long() -> _Refused:
    words = (
        f"The body is too long. Expected: at most {MOST_BODY >> 20} MiB, and {MOST_PLAIN >> 20} MiB "
        "unpacked. Fix: lower queue_config.max_samples_per_send of remote_write."
    )
    return _Refused("size", "413 Content Too Large", words, "its body is too long")


def _malformed(problem: str) -> _Refused:
    words = (
        f"The body is not a write request: {problem}. Expected: remote write 1.0, compressed with snappy. "
        "Fix: send it with Prometheus."
    )
    return _Refused("format", "400 Bad Request", words, problem)
