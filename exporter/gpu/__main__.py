"""``python -m exporter.gpu``: serve what NVIDIA's driver says about the GPUs to Prometheus."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import logging
import signal
import time
from collections.abc import Sequence
from functools import partial
from threading import Event

from exporter import logging_setup
from exporter.gpu.backend import BACKENDS, FRESH, LONGEST_RELEASE_SECONDS, PROFILES, RELEASE_SECONDS, Extras
from exporter.gpu.state import ChangeLog, State
from exporter.gpu.supervisor import Interval, Limits, RestartPolicy, Supervisor, WorkerProcess
from exporter.http.exposition import CONTENT_TYPE
from exporter.http.message import Answer, Later, Request, text
from exporter.http.routes import HostCheck, Routes
from exporter.http.server import Server
from exporter.options import (
    CommandLine,
    log_cannot_listen,
    number,
    one_of,
    positive,
    stopped_by_signal,
    string,
    switch,
)

logger = logging.getLogger("exporter.gpu")

TICK_SECONDS = 0.25


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    settings = command_line(arguments)
    options = settings.options()
    logging_setup.configure(options.log_level, options.log_format)
    stop = stopped_by_signal()
    front = Front(options)
    signal.signal(signal.SIGUSR1, lambda *_: front.release.set())
    try:
        server = Server((options.listen, options.port), front.pages)
    except OSError as error:
        log_cannot_listen(options, error)
        return 2
    logger.info("http://%s:%s/metrics shows the GPUs of this machine", options.listen, options.port)
    while not (stop.is_set() or front.must_restart()):
        server.serve(TICK_SECONDS)
        if settings.changed():
            front.apply(settings.renewed())
        front.tick()
    server.close()
    front.supervisor.stop()
    return 0 if stop.is_set() else FRESH


def command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Return the options, of these flags or of those of this process; new ones apply but for the address."""
    usual = Extras()
    flags = CommandLine(
        "python -m exporter.gpu",
        "Export GPU metrics from NVIDIA's driver to Prometheus.",
        arguments,
        _sick_exists,
    )
    flags.add_address(9411)
    flags.add(
        "backend", one_of("backend", BACKENDS), "nvml", "where the GPUs are: nvml, or demo for simulated ones"
    )
    flags.add("interval", positive, 1.0, "seconds between two readings")
    flags.add("idle", positive, 60.0, "seconds without a scrape after which GPUs are read only every 15 s")
    flags.add("expected", number, 0, "expected number of GPUs; 0 for the most that were seen")
    flags.add(
        "retry",
        positive,
        2.0,
        "seconds until a missing driver or GPU is searched for again, doubled up to 32 times that",
    )
    flags.add(
        "hang",
        positive,
        10.0,
        "seconds without an answer, at least three intervals, until the reading process is replaced",
    )
    flags.add(
        "restart-after",
        number,
        0,
        "seconds without a readable GPU, for a reason that a new container may fix, until the exporter exits "
        "to be restarted; 0 for never",
    )
    flags.add("processes", number, usual.processes, "maximum number of processes named per GPU; 0 for none")
    flags.add("proc", string, usual.proc, "the host's /proc, with the names of the processes")
    flags.add("serial", switch, usual.serial, "serve the serial numbers of the boards: true or false")
    flags.add("links", switch, usual.links, "count bytes and errors of each NVLink: true or false")
    flags.add("pcie", switch, usual.pcie, "sample PCIe before Hopper, 40 ms each time: true or false")
    flags.add(
        "profile",
        one_of("profile", PROFILES),
        usual.profile,
        f"what the simulated GPUs are: {', '.join(PROFILES)}",
    )
    flags.add("sick", number, usual.sick, "the number of the simulated GPU that fails")
    return flags


def _sick_exists(options: argparse.Namespace) -> None:
    there = PROFILES[options.profile]
    if options.sick is not None and options.sick >= there:
        raise argparse.ArgumentTypeError(
            f"--sick {options.sick}: no such GPU. "
            f"Expected a number from 0 to {there - 1}: --profile {options.profile} has {there} GPUs."
        )


class Front:
    """What serves the page: the parts behind it, made from the options and changed as those change."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.release = Event()
        self.state = State(options.interval, options.expected)
        self.interval = Interval(options.interval, options.idle, time.monotonic())
        self.restart_policy = RestartPolicy(options.restart_after)
        self.supervisor = Supervisor(partial(_start, options), self.state, self.interval, _limits(options))
        routes = Pages(self.state, self.interval, self.supervisor).routes()
        self.pages = HostCheck(routes, (*options.hosts, options.listen))
        self.state.settled = time.time()
        self.changes = ChangeLog(self.state, time.monotonic())

    def apply(self, options: argparse.Namespace | None) -> None:
        """Go on with other options; ``None``: the new ones cannot be used."""
        self.state.usable = options is not None
        if options is None:
            return
        logging_setup.configure(options.log_level, options.log_format)
        self.state.expected, self.state.settled = options.expected, time.time()
        self.interval.usual, self.interval.patience = options.interval, options.idle
        self.restart_policy.patience = options.restart_after
        self.pages.hosts = (*options.hosts, options.listen)
        self.supervisor.renew(partial(_start, options), _limits(options), time.monotonic())
        logger.info("New settings: applied without a restart.")

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self.release.is_set():
            self.release.clear()
            self.supervisor.release(RELEASE_SECONDS, now)
        self.supervisor.tick(now, time.time())
        self.changes.tick(now)

    def must_restart(self) -> bool:
        """Return whether only a restart helps, and log why."""
        now = time.monotonic()
        reason = self.state.trouble(now)
        over = self.restart_policy.lasts(reason, now)
        if over:
            logger.error(
                "No GPU could be read for %s s (%s), though they could be read before. Exiting to be "
                "restarted: a restarted container gets its devices and the library of the current driver. "
                "Fix if that does not help: recreate the container.",
                self.restart_policy.patience,
                reason,
            )
        return over


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(options.retry, options.hang)


def _start(options: argparse.Namespace) -> WorkerProcess:
    extras = Extras(*(getattr(options, name) for name in Extras._fields))
    return WorkerProcess(options.backend, extras, options.interval, (options.log_level, options.log_format))


INDEX = (
    "Stepwatch GPU exporter. Metrics: /metrics  Health: /-/healthy  After the first reading: /-/ready\n"
    "POST /-/release?seconds=60 releases the GPUs for a minute, to reset one or to change MIG.\n"
)
SPAN = f"Expected: /-/release?seconds=N with N from 0 (ends the release) to {LONGEST_RELEASE_SECONDS}.\n"
STUCK = "The process that reads the GPUs hangs in the driver and cannot be killed: no GPU is released.\n"
FREE = (
    "The GPUs are released for {} s: the process that had them open has ended.\n"
    "POST /-/release?seconds=0 ends the release.\n"
)


class Pages:
    """Gives the answer to each request."""

    def __init__(self, state: State, interval: Interval, supervisor: Supervisor) -> None:
        self._state = state
        self._interval = interval
        self._supervisor = supervisor

    def routes(self) -> Routes:
        """Return the routes, by path."""
        return Routes(
            {
                "/metrics": {"GET": self._metrics},
                "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
                "/-/ready": {"GET": self._ready},
                "/-/release": {"POST": self._release},
                "/": {"GET": lambda _: text("200 OK", INDEX)},
            }
        )

    def _metrics(self, _: Request) -> Answer:
        now = time.monotonic()
        self._interval.scraped(now)
        return Answer("200 OK", CONTENT_TYPE, self._state.page(now))

    def _ready(self, _: Request) -> Answer:
        if self._state.ready:
            return text("200 OK", "ok\n")
        return text("503 Service Unavailable", "not read yet\n")

    def _release(self, request: Request) -> Answer | Later:
        """Release the devices; the answer waits until that is done."""
        if "origin" in request.headers:  # any site can have its visitor's browser send this
            return text("403 Forbidden", "requests from browsers are refused\n")
        seconds = _seconds(request.query)
        if seconds is None:
            return text("400 Bad Request", SPAN)
        self._supervisor.release(seconds, time.monotonic())
        return lambda: self._released(seconds)

    def _released(self, seconds: int) -> Answer | None:
        if not seconds:
            return text("200 OK", "The GPUs are read again.\n")
        if self._supervisor.stuck(time.monotonic()):
            return text("503 Service Unavailable", STUCK)
        return text("200 OK", FREE.format(seconds)) if self._supervisor.free else None


def _seconds(query: str) -> int | None:
    name, _, text = (query or f"seconds={RELEASE_SECONDS}").partition("=")
    known = name == "seconds" and text.isascii() and text.isdecimal() and len(text) < 6
    return int(text) if known and int(text) <= LONGEST_RELEASE_SECONDS else None


if __name__ == "__main__":
    process.run(main)
