"""``python -m exporter.gpu``: serve what NVIDIA's driver says about the GPUs to Prometheus."""

from __future__ import annotations

from exporter import interrupt

if __name__ == "__main__":
    interrupt.end_at_once()  # first of all: the modules below take their time

import argparse
import logging
import signal
import time
from collections.abc import Sequence
from threading import Event

from exporter import logging_setup
from exporter.gpu.backend import Extras
from exporter.gpu.contract import FRESH, RELEASE_SECONDS
from exporter.gpu.journal import Journal
from exporter.gpu.options import command_line
from exporter.gpu.pages import Pages
from exporter.gpu.state import State
from exporter.gpu.supervisor import Interval, Limits, RestartPolicy, Supervisor
from exporter.gpu.worker_process import WorkerProcess
from exporter.http.host_check import HostCheck
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
    while not (stop.is_set() or front.hopeless()):
        server.serve(TICK_SECONDS)
        if settings.changed():
            front.take(settings.renewed())
        front.tick()
    server.close()
    front.keeper.stop()
    return 0 if stop.is_set() else FRESH


class Front:
    """What serves the page: the parts behind it, made from the options and changed as those change."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.release = Event()
        self.box = State(options.interval, options.expected)
        self.pace = Interval(options.interval, options.idle, time.monotonic())
        self.outage = RestartPolicy(options.restart_after)
        self.keeper = Supervisor(lambda: _child(options), self.box, self.pace, _limits(options))
        self.pages = HostCheck(Pages(self.box, self.pace, self.keeper), (*options.hosts, options.listen))
        self.box.settled = time.time()
        self.journal = Journal(self.box, time.monotonic())

    def take(self, options: argparse.Namespace | None) -> None:
        """Go on with other options; ``None``: those that there were cannot be used."""
        self.box.usable = options is not None
        if options is None:
            return
        logging_setup.configure(options.log_level, options.log_format)
        self.box.expected, self.box.settled = options.expected, time.time()
        self.pace.usual, self.pace.patience = options.interval, options.idle
        self.outage.patience = options.restart_after
        self.pages.hosts = (*options.hosts, options.listen)
        self.keeper.renew(lambda: _child(options), _limits(options), time.monotonic())
        logger.info("New settings: reading goes on with them.")

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self.release.is_set():
            self.release.clear()
            self.keeper.release(RELEASE_SECONDS, now)
        self.keeper.tick(now, time.time())
        self.journal.look(now)

    def hopeless(self) -> bool:
        """Return whether only a restart helps, and log why."""
        now = time.monotonic()
        reason = self.box.trouble(now)
        over = self.outage.lasts(reason, now)
        if over:
            logger.error(
                "No GPU could be read for %s s (%s), though they could before. Ending, to be started again: "
                "a container then gets its devices, and the library of the present driver. "
                "Fix if that does not help: make the container anew.",
                self.outage.patience,
                reason,
            )
        return over


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(options.retry, options.hang)


def _child(options: argparse.Namespace) -> WorkerProcess:
    extras = Extras(*(getattr(options, name) for name in Extras._fields))
    return WorkerProcess(options.backend, extras, options.interval, (options.log_level, options.log_format))


if __name__ == "__main__":
    interrupt.run(main)
