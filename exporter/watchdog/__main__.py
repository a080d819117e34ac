"""``python -m exporter.watchdog``: look at what keeps Prometheus from reporting faults, and report it."""

from __future__ import annotations

from exporter import interrupt

if __name__ == "__main__":
    interrupt.end_at_once()  # first of all: the modules below take their time

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any

from exporter.host_check import HostCheck
from exporter.lossy import lose_what_cannot_be_written
from exporter.options import Flags, cannot_listen, hosts, port, positive, stopped_by_signal
from exporter.server import Server
from exporter.settings import VARIABLE, SettingsFile
from exporter.watchdog import disks
from exporter.watchdog.client import Client
from exporter.watchdog.disks import Folder
from exporter.watchdog.finding import Findings
from exporter.watchdog.pages import Pages
from exporter.watchdog.servers import Alertmanager, Prometheus
from exporter.watchdog.supervisor import Supervisor

PREFIX = "STEPWATCH_WATCHDOG_"
LOOK_SECONDS = 10.0
"""Between two looks. With what each of them needs to be sure, a fault is reported within a minute."""
TICK_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the watchdog until SIGTERM or SIGINT. Returns the exit code."""
    settings = SettingsFile.named()
    options = _options(settings, arguments)
    stop = stopped_by_signal()
    watchdog = Watchdog(options)
    pages = Pages(watchdog.findings, lambda: watchdog.looked, lambda: disks.samples(watchdog.folders))
    try:
        server = Server((options.listen, options.port), HostCheck(pages, {*options.hosts, options.listen}))
    except OSError as error:
        print(cannot_listen(options, error), file=sys.stderr)
        return 2
    print(f"http://{options.listen}:{options.port}/ tells what keeps the stack from alerting", flush=True)
    watchdog.start()
    while not stop.is_set():
        server.serve(TICK_SECONDS)
        if settings.changed() and _usable(settings, arguments):
            server.close()
            os.execv(sys.executable, [sys.executable, "-m", "exporter.watchdog", *sys.argv[1:]])  # noqa: S606
    server.close()
    return 0


class Watchdog:
    """Looks at everything again and again; ``looked`` is when it last did (Unix seconds), 0 before that."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.looked = 0.0
        self.folders = [Folder(part, path) for part, path in options.state]
        alert = options.alert
        self.findings = Findings(alert["severity"], alert["annotations"], alert["generator"])
        self._enabled = alert["enabled"]
        self._alertmanager = Alertmanager(Client(options.alertmanager, options.password_file))
        self._prometheus = Prometheus(
            Client(options.prometheus, options.password_file), options.scrape_interval, options.rules_interval
        )
        self._supervisor = Supervisor(options.supervisor)

    def start(self) -> None:
        """Begin to look, in the background."""
        for folder in self.folders:
            folder.start()
        Thread(target=self._run, name="looks", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                self._look()
            except Exception:  # noqa: BLE001  (what no one thought of must not end the looks)
                sys.excepthook(*sys.exc_info())
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        found = list(disks.findings(self.folders))
        found += self._alertmanager.look()
        stopped = {part for finding in found for part in finding.parts if finding.fault.startswith("disk_")}
        # Without its disk Prometheus stores nothing, or is down: that is one fault, not two.
        found += [
            finding
            for finding in self._prometheus.look(self._alertmanager.answers_since)
            if "prometheus" not in stopped or finding.fault == "notifications_dropped"
        ]
        now = time.time()
        over = self.findings.update(found, now)
        for finding in over:
            _log(f"over: {finding.summary}: {finding.name}")
            if finding.fault.startswith("disk_"):
                for part in finding.parts:
                    if self._supervisor.start(part):
                        _log(f"started {part}, which had died while its disk was full")
        for known in self.findings.present:
            if known.since == now:
                _log(f"{known.finding.summary}: {known.finding.description}")
        alerts = self.findings.alerts(now) if self._enabled else []
        if not alerts or self._alertmanager.post(alerts):
            self.findings.forget(now)
        self.looked = now


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(settings: SettingsFile, arguments: Sequence[str] | None) -> argparse.Namespace:
    return parser({**settings.values(), **os.environ}).parse_args(arguments)


def _usable(settings: SettingsFile, arguments: Sequence[str] | None) -> bool:
    try:
        _options(settings, arguments)
    except SystemExit:
        print(f"{settings.path} cannot be used; the old settings stay.", file=sys.stderr)
        return False
    return True


def parser(variables: Mapping[str, str]) -> argparse.ArgumentParser:
    """The parser, with the defaults that variables give."""
    made = argparse.ArgumentParser(
        prog="python -m exporter.watchdog",
        description="Report faults that keep Prometheus from storing, judging and alerting. "
        f"Each flag is also a variable: {PREFIX}PORT, {PREFIX}STATE, ... The file that {VARIABLE} names may "
        "give them as well, in lines NAME=value; the watchdog starts again when that file changes.",
    )
    flags = Flags(made, PREFIX, variables)
    flags.add("port", port, 9412, "port to serve on")
    flags.add("listen", str, "127.0.0.1", "address to serve on")
    flags.add("hosts", hosts, (), "names besides the machine's own that requests may use, with commas")
    flags.add("state", _state, (), "state folders of parts, each PART=FOLDER", nargs="+")
    flags.add("prometheus", str, "http://127.0.0.1:9090", "URL of Prometheus")
    flags.add("alertmanager", str, "http://127.0.0.1:9093", "URL of Alertmanager")
    flags.add("password-file", str, None, "file with the password that both ask the user stepwatch for")
    flags.add("supervisor", str, None, "socket of the supervisord that runs the parts, if there is one")
    flags.add("scrape-interval", positive, 5.0, "seconds between two scrapes of the run exporter")
    flags.add("rules-interval", positive, 5.0, "seconds between two evaluations of the rules about runs")
    flags.add("alert", _alert, _alert("{}"), "severity, annotations and link of the alert, as JSON")
    return made


def _state(text: str) -> tuple[str, str]:
    part, _, path = text.partition("=")
    if not part or not path.startswith("/"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not PART=FOLDER. Expected e.g. prometheus=/prometheus."
        )
    return part, path


def _alert(text: str) -> dict[str, Any]:
    usual: dict[str, Any] = {"enabled": True, "severity": "critical", "annotations": {}, "generator": ""}
    try:
        return {**usual, **json.loads(text)}
    except (ValueError, TypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object.") from None


if __name__ == "__main__":
    lose_what_cannot_be_written()
    interrupt.run(main)
