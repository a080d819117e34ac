"""``python -m exporter.gpu``: serve what NVIDIA's driver says about the GPUs to Prometheus."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import json
import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from exporter import logging_setup
from exporter.gpu.backend import LONGEST_RELEASE_SECONDS, PROFILES, RELEASE_SECONDS, Backend, Settings
from exporter.gpu.gpus import Gpus
from exporter.http.exposition import CONTENT_TYPE
from exporter.http.message import Answer, Later, Request, text
from exporter.http.routes import HostCheck, Routes
from exporter.http.server import Server
from exporter.options import CommandLine, stopped_by_signal

logger = logging.getLogger("exporter.gpu")

TICK_SECONDS, POLL_SECONDS = 0.25, 0.02
FRESH = 75
"""Exit code with which the exporter asks to be restarted."""
KEPT = "STEPWATCH_GPU_KEPT"
"""The variable in which this program hands over its state when it starts itself again."""
INDEX = (
    "Stepwatch GPU exporter. Metrics: /metrics  Health: /-/healthy  After the first reading: /-/ready\n"
    "POST /-/release?seconds=60 releases the GPUs for a minute, to reset one or to change MIG.\n"
)
SPAN = f"Expected: /-/release?seconds=N with N from 0 (ends the release) to {LONGEST_RELEASE_SECONDS}.\n"
STUCK = "A call hangs in the driver and cannot be ended: no GPU is released. Fix: reset the GPU or reboot.\n"
FREE = "The GPUs are released for {} s: no device is open.\nPOST /-/release?seconds=0 ends the release.\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    kept = json.loads(os.environ.pop(KEPT, "null"))
    flags = command_line(arguments)
    options = flags.options()
    logging_setup.configure(options.log_level, options.log_format)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a driver that crashes again and again fills disks
    stop = stopped_by_signal()
    gpus = Gpus(_backend, options)
    pages = HostCheck(routes(gpus), (*options.hosts, options.listen))
    try:
        server = Server((options.listen, options.port), pages)
    except OSError as error:
        options.cannot_listen(error)
        return 2
    logger.info("http://%s:%s/metrics shows the GPUs of this machine", options.listen, options.port)
    if kept is not None:
        gpus.take_over(kept)
        _answer(kept["waiting"], FREE.format(kept["released"]).encode())
    gpus.start()
    server.start()
    reason = ""
    while not (reason or stop.wait(TICK_SECONDS)):
        if flags.changed():
            renewed = flags.renewed()
            gpus.usable = renewed is not None
            if renewed:
                options = renewed
                logging_setup.configure(options.log_level, options.log_format)
                server.alone(partial(gpus.configure, options))
                pages.hosts = (*options.hosts, options.listen)
                logger.info("New settings: applied without a restart.")
        reason = server.alone(lambda: gpus.tick(time.monotonic()))
        if gpus.must_restart:
            _restart(gpus, server)
    if reason:
        logger.error(
            "No GPU could be read for %s s (%s), though they could be read before. Exiting to be "
            "restarted: a restarted container gets its devices and the library of the current driver. "
            "Fix if that does not help: recreate the container.",
            options.restart_after,
            reason,
        )
    server.stop()
    code = 0 if stop.is_set() else FRESH
    if not gpus.stop():
        os._exit(code)  # a thread that the driver holds would keep a normal end waiting
    return code


def _backend(settings: Settings) -> Backend:
    """The GPUs of this machine or the simulated ones; only what is asked for is loaded."""
    if settings.backend == "demo":
        from exporter.gpu.demo import Demo  # noqa: PLC0415

        return Demo(settings)
    from exporter.gpu.nvml import Nvml  # noqa: PLC0415

    return Nvml(settings)


def _restart(gpus: Gpus, server: Server) -> None:
    """Start this program again under the same id, without threads, devices and library."""
    kept = {**gpus.kept(), "waiting": server.waiting()}
    os.environ[KEPT] = json.dumps(kept)
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  (pathlib weighs 1 MB)
        if descriptor > 2:
            with suppress(OSError):  # that of the folder itself
                os.set_inheritable(descriptor, descriptor in kept["waiting"])
    logger.warning("Only a new process can close or load NVIDIA's library now: starting again.")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  (it is this program)


def _answer(descriptors: Sequence[int], body: bytes) -> None:
    """Answer the clients that waited when the process before this one ended."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    for descriptor in descriptors:
        with socket.socket(fileno=descriptor) as client, suppress(OSError):  # the client may have gone
            client.settimeout(1)
            client.sendall(head + body)


def command_line(arguments: Sequence[str] | None = None) -> CommandLine[Settings]:
    """Return the options, of these flags or of those of this process; new ones apply but for the address."""
    text = "Export GPU metrics from NVIDIA's driver to Prometheus."
    return CommandLine("python -m exporter.gpu", text, Settings, arguments, _sick_exists)


def _sick_exists(options: Settings) -> None:
    there = PROFILES[options.profile]
    if options.sick is not None and options.sick >= there:
        raise argparse.ArgumentTypeError(
            f"--sick {options.sick}: no such GPU. "
            f"Expected a number from 0 to {there - 1}: --profile {options.profile} has {there} GPUs."
        )


def routes(gpus: Gpus) -> Routes:
    """Return the answers to requests, by path and method."""

    def metrics(_: Request) -> Answer:
        return Answer("200 OK", CONTENT_TYPE, gpus.page(time.monotonic()))

    def ready(_: Request) -> Answer:
        return text("200 OK", "ok\n") if gpus.ready else text("503 Service Unavailable", "not read yet\n")

    def release(request: Request) -> Answer | Later:
        """Release the devices; the answer waits until that is done."""
        if "origin" in request.headers:  # any site can have its visitor's browser send this
            return text("403 Forbidden", "requests from browsers are refused\n")
        seconds = _seconds(request.query)
        if seconds is None:
            return text("400 Bad Request", SPAN)
        gpus.release(seconds, time.monotonic())

        def released() -> Answer:
            while not (gpus.stuck or gpus.free):
                time.sleep(POLL_SECONDS)
            return text("503 Service Unavailable", STUCK) if gpus.stuck else text("200 OK", done)

        done = FREE.format(seconds)
        return released if seconds else text("200 OK", "The GPUs are read again.\n")

    return Routes(
        {
            "/metrics": {"GET": metrics},
            "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
            "/-/ready": {"GET": ready},
            "/-/release": {"POST": release},
            "/": {"GET": lambda _: text("200 OK", INDEX)},
        }
    )


def _seconds(query: str) -> int | None:
    name, _, text = (query or f"seconds={RELEASE_SECONDS}").partition("=")
    known = name == "seconds" and text.isascii() and text.isdecimal() and len(text) < 6
    return int(text) if known and int(text) <= LONGEST_RELEASE_SECONDS else None


if __name__ == "__main__":
    process.run(main)
