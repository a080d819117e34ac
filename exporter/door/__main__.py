"""``python -m exporter.door``: receive remote write of agents for the Prometheus of a hub."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import asyncio
import logging
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from exporter import logging_setup
from exporter.door.agents import WriteDoor, is_loopback, response
from exporter.http.message import metrics_page, text
from exporter.http.routes import OWN_NAMES, is_known, refusal
from exporter.options import CommandLine, port, string, switch

logger = logging.getLogger("exporter.door")

TICK_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the door until SIGTERM or SIGINT. Returns the exit code."""
    flags = CommandLine("python -m exporter.door", "Receive remote write of agents.", arguments, _check)
    flags.add("listen", string, "127.0.0.1", "address of its own pages")
    flags.add("port", port, 9416, "port of its own pages: /metrics and /-/healthy")
    flags.add("prometheus", string, "127.0.0.1:9090", "host:port of Prometheus")
    flags.add("password-file", Path, Path("internal-password"), "file with the password of its user internal")
    flags.add("agents-listen", string, "127.0.0.1", "address that receives remote write")
    flags.add("agents-port", port, 9415, "port that receives remote write")
    flags.add("agents-credentials", Path, Path("agents"), "folder of the nodes that may write")
    flags.add("agents-cert", Path, None, "certificate (PEM) for agents")
    flags.add("agents-key", Path, None, "private key (PEM) of that certificate")
    flags.add(
        "agents-plain",
        switch,
        "false",
        "allow HTTP beyond loopback, where this address is reachable by loopback only",
    )
    options = flags.options()
    logging_setup.configure(options.log_level, options.log_format)
    try:
        asyncio.run(_serve(options, flags))
    except OSError as error:
        logger.error(  # noqa: TRY400 - a user's mistake
            "--listen %s: cannot listen on port %s: %s. Expected an address of this machine and a free port. "
            "Fix: stop the program that has the port, or choose another one.",
            options.listen,
            options.port,
            error.strerror,
        )
        return 2
    return 0


def _check(options: argparse.Namespace) -> None:
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


async def _serve(options: argparse.Namespace, flags: CommandLine) -> None:
    """Serve agents, and the door's own pages; of new options in the file those of the log apply."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    door = WriteDoor(options)

    async def page(request: web.BaseRequest) -> web.Response:
        if not is_known(host := request.headers.get("Host", "localhost"), OWN_NAMES):
            return response(refusal("Host", host))
        if request.path == "/metrics":
            return response(metrics_page(door.metrics()))
        healthy = request.path == "/-/healthy"
        return response(text("200 OK", "ok\n") if healthy else text("404 Not Found", "Pages: /metrics\n"))

    pages = web.ServerRunner(web.Server(page, access_log=None), shutdown_timeout=0.5)
    try:
        await pages.setup()
        await web.TCPSite(pages, options.listen, options.port).start()
        await door.start()
        while not stop.is_set():
            if flags.changed() and (renewed := flags.renewed()):
                logging_setup.configure(renewed.log_level, renewed.log_format)
            door.look()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_SECONDS)
    finally:
        await door.close()
        await pages.cleanup()


if __name__ == "__main__":
    process.run(main)
