"""``python -m exporter.watchdog``: report faults that keep Prometheus from alerting."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import json
import logging
import time
from collections.abc import Sequence
from threading import Thread
from typing import Any

from exporter import logging_setup
from exporter.engine_client import Client
from exporter.http.exposition import Sample, own
from exporter.http.message import Answer, Request, metrics_page, text
from exporter.http.routes import HostCheck, Routes
from exporter.http.server import Server
from exporter.options import CommandLine, log_cannot_listen, positive, start_again, stopped_by_signal, string
from exporter.watchdog import disks
from exporter.watchdog.disks import Folder
from exporter.watchdog.finding import Findings
from exporter.watchdog.servers import Alertmanager, Prometheus, Supervisor

logger = logging.getLogger("exporter.watchdog")

LOOK_SECONDS = 10.0
"""Between two checks. Including confirmation, a fault is reported within a minute."""
TICK_SECONDS = 0.5

INDEX = "Stepwatch watchdog. What is wrong: /api/v1/findings  Metrics: /metrics  Health: /-/healthy\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the watchdog until SIGTERM or SIGINT. Returns the exit code."""
    settings = command_line(arguments)
    options = settings.options()
    logging_setup.configure(options.log_level, options.log_format)
    stop = stopped_by_signal()
    watchdog = Watchdog(options)
    pages = HostCheck(watchdog.routes(), {*options.hosts, options.listen})
    try:
        server = Server((options.listen, options.port), pages)
    except OSError as error:
        log_cannot_listen(options, error)
        return 2
    logger.info("http://%s:%s/ shows what keeps the stack from alerting", options.listen, options.port)
    watchdog.start()
    while not stop.is_set():
        server.serve(TICK_SECONDS)
        if settings.changed() and settings.renewed():
            break
    server.close()
    start_again("exporter.watchdog", stop)
    return 0


class Watchdog:
    """Checks everything repeatedly, and serves its findings."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._looked = 0.0  # Unix seconds; 0 before the first look
        self._folders = [Folder(part, path) for part, path in options.state]
        self._findings = Findings(options.alert)
        self._posts: bool = options.alert["enabled"]
        self._alertmanager = Alertmanager(Client(options.alertmanager, options.password_file))
        self._prometheus = Prometheus(
            Client(options.prometheus, options.password_file), options.scrape_interval, options.rules_interval
        )
        self._supervisor = Supervisor(options.supervisor)

    def start(self) -> None:
        """Start the checks in the background."""
        for folder in self._folders:
            folder.start()
        Thread(target=self._run, name="looks", daemon=True).start()

    def routes(self) -> Routes:
        """Return the routes, by path."""
        return Routes(
            {
                "/": {"GET": lambda _: text("200 OK", INDEX)},
                "/metrics": {"GET": self._metrics},
                "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
                "/api/v1/findings": {"GET": self._json},
            }
        )

    def _json(self, _: Request) -> Answer:
        findings = [
            {**known.finding._asdict(), "severity": self._findings.severity, "since": known.since}
            for known in self._findings.present
        ]
        document = {"looked": self._looked, "findings": findings}
        return Answer("200 OK", "application/json", json.dumps(document).encode() + b"\n")

    def _metrics(self, _: Request) -> Answer:
        found: list[Sample] = [
            ({"fault": known.finding.fault, "name": known.finding.name}, 1)
            for known in self._findings.present
        ]
        metrics = [
            own("watchdog_finding", "Current findings.", found),
            own("watchdog_last_look_timestamp_seconds", "When the last check ended.", self._looked),
            *disks.samples(self._folders),
        ]
        return metrics_page(metrics)

    def _run(self) -> None:
        while True:
            try:
                self._look()
            except Exception:  # an unforeseen one must not end the looks
                logger.exception("A check of the stack failed. The next one is in %.0f s.", LOOK_SECONDS)
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        found = [*disks.findings(self._folders), *self._alertmanager.look()]
        stopped = {part for finding in found for part in finding.parts if finding.fault.startswith("disk_")}
        # Without its disk, Prometheus stores nothing or is down: that is one fault, not two.
        found += [
            finding
            for finding in self._prometheus.look(self._alertmanager.answers_since)
            if "prometheus" not in stopped or finding.fault == "notifications_dropped"
        ]
        now = time.time()
        over = self._findings.update(found, now)
        for finding in over:
            logger.info("resolved: %s: %s", finding.summary, finding.name)
        for known in self._findings.present:
            if known.since == now:
                logger.error("%s: %s", known.finding.summary, known.finding.description)
        for part in (part for each in over if each.fault.startswith("disk_") for part in each.parts):
            if self._supervisor.start(part):
                logger.info("started %s, which had died while its disk was full", part)
        alerts = self._findings.alerts(now) if self._posts else []
        if not alerts or self._alertmanager.post(alerts):
            self._findings.forget(now)
        self._looked = now


def command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Return the options, of these flags or of those of this process."""
    flags = CommandLine(
        "python -m exporter.watchdog",
        "Send an alert about faults that keep Prometheus from storing, evaluating and alerting.",
        arguments,
    )
    flags.add_address(9412)
    flags.add("state", _state, (), "state folders of parts, each PART=FOLDER", many=True)
    flags.add("prometheus", string, "http://127.0.0.1:9090", "URL of Prometheus")
    flags.add("alertmanager", string, "http://127.0.0.1:9093", "URL of Alertmanager")
    flags.add("password-file", string, None, "file with the password of the user internal of both")
    flags.add("supervisor", string, None, "socket of the supervisord that runs the parts, if there is one")
    flags.add("scrape-interval", positive, 5.0, "seconds between two scrapes of the run exporter")
    flags.add("rules-interval", positive, 5.0, "seconds between two evaluations of the rules about runs")
    flags.add("alert", _alert, _alert({}), "severity, labels, annotations and link of the alert, as JSON")
    return flags


def _state(value: object) -> tuple[str, str]:
    part, _, path = string(value).partition("=")
    if not part or not path.startswith("/"):
        raise argparse.ArgumentTypeError(
            f"{value!r} is not PART=FOLDER. Expected e.g. prometheus=/prometheus."
        )
    return part, path


def _alert(value: object) -> dict[str, Any]:
    usual: dict[str, Any] = {"enabled": True, "severity": "critical", "annotations": {}, "generator": ""}
    try:
        return {**usual, **(json.loads(value) if isinstance(value, str) else value)}  # type: ignore[dict-item]
    except (ValueError, TypeError):
        raise argparse.ArgumentTypeError(f"{value!r} is not an alert. Expected a JSON mapping.") from None


if __name__ == "__main__":
    process.run(main)
