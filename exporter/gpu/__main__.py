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
from exporter.gpu.backend import Extras
from exporter.gpu.contract import FRESH, RELEASE_SECONDS
from exporter.gpu.options import command_line
from exporter.gpu.pages import Pages
from exporter.gpu.state import ChangeLog, State
from exporter.gpu.supervisor import Interval, Limits, RestartPolicy, Supervisor, WorkerProcess
from exporter.http.routes import HostCheck
from exporter.http.server import Server
from exporter.options import log_cannot_listen, stopped_by_signal

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


class Front:
    """What serves the page: the parts behind it, made from the options and changed as those change."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.release = Event()
        self.state = State(options.interval, options.expected)
        self.interval = Interval(options.interval, options.idle, time.monotonic())
        self.restart_policy = RestartPolicy(options.restart_after)
        self.supervisor = Supervisor(partial(_start, options), self.state, self.interval, _limits(options))
        pages = Pages(self.state, self.interval, self.supervisor)
        self.pages = HostCheck(pages, (*options.hosts, options.listen))
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


if __name__ == "__main__":
    process.run(main)
