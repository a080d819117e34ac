"""``python -m exporter.door``: serve Prometheus and Alertmanager to people, but not to other web pages."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from aiohttp import ClientSession, web

from exporter import logging_setup
from exporter.door.agents import Settings, WriteDoor, is_loopback
from exporter.door.proxy import MOST_CLIENTS, Backend, Clients, OriginCheck, Proxy, session
from exporter.http.exposition import Sample, by_label, own
from exporter.http.message import Answer, metrics_page, text
from exporter.options import CommandLine, hosts, port, string, switch

logger = logging.getLogger("exporter.door")

HEALTHY, METRICS = "/-/door/healthy", "/-/door/metrics"
"""On both ports; below /-/door/ neither program has pages."""
TICK_SECONDS = 0.5
LONGEST_HEAD = 1 << 16
"""Bytes of a URL or a header: a query may be long, and all programs on 127.0.0.1 share their cookies."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the door until SIGTERM or SIGINT. Returns the exit code."""
    settings = _command_line(arguments)
    options = settings.options()
    logging_setup.configure(options.log_level, options.log_format)
    try:
        asyncio.run(_serve(options, settings))
    except OSError as error:
        logger.error(  # noqa: TRY400 - a user's mistake
            "--listen %s: cannot listen on port %s or %s: %s. Expected an address of this machine and free "
            "ports. Fix: stop the program that has the port, or choose another one.",
            options.listen,
            options.prometheus_port,
            options.alertmanager_port,
            error.strerror,
        )
        return 2
    return 0


def _command_line(arguments: Sequence[str] | None) -> CommandLine:
    """Return the options; of new ones in the file the origins and those of the log apply."""
    flags = CommandLine(
        "python -m exporter.door",
        "Serve Prometheus and Alertmanager, and refuse requests from other web pages.",
        arguments,
        _check_agents,
    )
    flags.add("listen", string, "127.0.0.1", "address to serve on")
    flags.add("prometheus-port", port, 9090, "port to serve Prometheus on")
    flags.add("alertmanager-port", port, 9093, "port to serve Alertmanager on")
    flags.add("prometheus", string, "127.0.0.1:9490", "host:port of Prometheus behind the door")
    flags.add("alertmanager", string, "127.0.0.1:9493", "host:port of Alertmanager behind the door")
    flags.add("password-file", Path, Path("password"), "file with the password of both")
    flags.add("origins", hosts, (), "further origins whose pages may send requests, separated by commas")
    flags.add("agents-listen", string, "127.0.0.1", "address that receives remote write from agents")
    flags.add("agents-port", port, 9415, "port that receives remote write from agents")
    flags.add("agents-credentials", string, "", "folder of the nodes that may write; without it, no node may")
    flags.add("agents-cert", string, "", "certificate (PEM) for agents")
    flags.add("agents-key", string, "", "private key (PEM) of that certificate")
    flags.add(
        "agents-plain",
        switch,
        "false",
        "allow HTTP beyond loopback, where this address is reachable by loopback only",
    )
    return flags


def _check_agents(options: argparse.Namespace) -> None:
    if not options.agents_credentials:
        return
    if bool(options.agents_cert) != bool(options.agents_key):
        raise argparse.ArgumentTypeError(
            "--agents-cert, --agents-key: only one of them is set. Expected both, or neither."
        )
    if not (options.agents_cert or options.agents_plain or is_loopback(options.agents_listen)):
        raise argparse.ArgumentTypeError(
            f"--agents-listen {options.agents_listen}: tokens would pass the network unencrypted. Expected "
            "127.0.0.1, or --agents-cert and --agents-key. Fix: set agents.cert_file and agents.key_file in "
            "config.yaml."
        )


def _agents(options: argparse.Namespace, backends: ClientSession) -> WriteDoor:
    files = Path(options.agents_cert), Path(options.agents_key)
    settings = Settings(
        options.agents_listen,
        options.agents_port,
        Path(options.agents_credentials),
        files if options.agents_cert else None,
    )
    prometheus = Backend("prometheus", "Prometheus", options.prometheus)
    return WriteDoor(settings, prometheus, options.password_file, backends)


async def _serve(options: argparse.Namespace, settings: CommandLine) -> None:
    check, clients = OriginCheck(options.origins), Clients()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with session() as backends, AsyncExitStack() as running:
        proxies: list[Proxy] = []
        agents = _agents(options, backends) if options.agents_credentials else None
        pages = {HEALTHY: lambda: text("200 OK", "ok\n"), METRICS: lambda: _metrics(proxies, clients, agents)}
        servers = []
        for name, at, address in (
            ("prometheus", options.prometheus_port, options.prometheus),
            ("alertmanager", options.alertmanager_port, options.alertmanager),
        ):
            backend = Backend(name, name.capitalize(), address)
            proxies.append(Proxy(backend, options.password_file, check, clients, backends, pages))
            server = web.Server(
                proxies[-1],
                handler_cancellation=True,  # after a client disconnects, Prometheus may stop
                access_log=None,
                auto_decompress=False,
                max_line_size=LONGEST_HEAD,
                max_field_size=LONGEST_HEAD,
            )
            runner = web.ServerRunner(server, shutdown_timeout=0.5)
            running.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.TCPSite(runner, options.listen, at, backlog=MOST_CLIENTS).start()
            servers.append(server)
            logger.info(
                "http://%s:%s forwards requests to %s at %s", options.listen, at, backend.title, address
            )
        if agents:
            running.push_async_callback(agents.close)
            await agents.start()
        while not stop.is_set():
            if settings.changed() and (renewed := settings.renewed()):
                check.origins = renewed.origins
                logging_setup.configure(renewed.log_level, renewed.log_format)
            clients.look([client for server in servers for client in server.connections])
            if agents:
                agents.look()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_SECONDS)


def _metrics(proxies: Sequence[Proxy], clients: Clients, agents: WriteDoor | None) -> Answer:
    requests: list[Sample] = []
    for proxy in proxies:
        for code, count in sorted(proxy.answered.items()):
            requests.append(({"backend": proxy.backend.name, "code": code}, count))
    failures = by_label("backend", {proxy.backend.name: proxy.failures for proxy in proxies})
    dropped = Counter(clients.dropped)
    if agents:
        dropped.update(agents.clients.dropped)
    metrics = [
        own("door_requests_total", "Requests by status code.", requests),
        own("door_backend_failures_total", "Requests that the backend did not answer.", failures),
        own("door_clients_dropped_total", "Clients that were dropped.", by_label("reason", dropped)),
        *(agents.metrics() if agents else ()),
    ]
    return metrics_page(metrics)


if __name__ == "__main__":
    process.run(main)
