"""The run exporter as a whole: its parts, put together as the options say."""

from __future__ import annotations

import glob
from collections.abc import Callable
from pathlib import Path

from exporter.engine_client import Client
from exporter.http.routes import HostCheck, Routes
from exporter.http.server import Server
from exporter.runs import cli
from exporter.runs.alerting_health import AlertingHealth
from exporter.runs.collector import Collector
from exporter.runs.light.site import Light
from exporter.runs.overview.models import Omitted
from exporter.runs.overview.overview import Overview
from exporter.runs.overview.panels import PanelFile
from exporter.runs.sender import MOST_BODY as MOST_SENT
from exporter.runs.sender import Sender
from exporter.runs.serve import endpoints
from exporter.runs.targets.discovery import Discovery, LogTargets
from exporter.runs.targets.files import RAY_FILE, RAY_LIST, VERL_FILE, VERL_LIST, ListFiles
from exporter.runs.targets.registrations import Registrations
from exporter.runs.targets.target import AddressMap, Allowlist

MOST_BODY = 1 << 16  # bytes of a request's body
LOOK_SECONDS = 0.5  # between two looks at the logs


class App:
    """Watches runs, finds servers, and answers. Raises OSError if it cannot listen."""

    def __init__(self, options: cli.Settings, panels: Path, stopped: Callable[[], bool]) -> None:
        self._collector = collector = Collector(options, stopped=stopped)
        ports = {"prometheus_port": options.prometheus_port, "grafana_port": options.grafana_port}
        allowed, token = options.discovery_allow, options.token_file
        self._registrations = Registrations(collector.states, allowed, token, ports)
        collector.addresses = self._registrations.trainers
        self._alerting = _alerting(options)
        self._sender = Sender(options.hub, options.password_file) if options.hub else None
        self._overview = Overview(
            collector.views,
            PanelFile(panels),
            omitted=self._omitted,
            url=options.prometheus_url,
            faults=lambda: watching.faults if (watching := self._alerting or self._sender) else (),
            alertmanager=options.alertmanager_url,
            password_file=options.password_file,
            external_labels=options.external_labels,
            actions=options.actions_url,
            remote=options.runs_of_agents,
        )
        self._discovery = _discovery(options, collector, self._registrations)
        light = Light(self._overview, options.path, options.agents_page)
        own = endpoints.table(collector.metrics, collector.mark, collector.health.report)
        findings = {"/api/v1/findings": {"GET": self._alerting.answer}} if self._alerting else {}
        sent = self._sender.routes() if self._sender else {}
        targets = {**self._discovery.routes(), **self._registrations.routes()}
        routes = Routes({**own, **findings, **sent, **targets, **light.routes()})
        pages = HostCheck(routes, {*options.hosts, options.listen})
        most_body = MOST_SENT if self._sender else MOST_BODY
        self._server = Server((options.listen, options.port), pages, most_body)
        parts = (self._server, self._overview, self._discovery, self._registrations, collector.registered)
        collector.health.others += [part.samples for part in (*parts, self._alerting, self._sender) if part]

    def start(self) -> None:
        """Start the background threads."""
        for part in (self._server, self._collector, self._overview, self._discovery, self._alerting):
            if part:
                part.start()

    def look(self) -> float:
        """Read new data; returns the seconds until the next call is due."""
        more = self._collector.look()
        self._registrations.maintain()
        return 0 if more else LOOK_SECONDS

    def _omitted(self) -> Omitted:
        health = self._collector.health
        left = health.left_out
        return Omitted(
            not self._collector.caught_up,
            health.dormant,
            left["running"],
            left["ended"],
            health.files["left_out"],
            tuple(health.hung),
        )

    def stop(self) -> None:
        """Answer no more, and save of what was taken until then what a restart could not rebuild."""
        for part in (self._server, self._overview, self._discovery, self._sender):
            if part:
                part.stop()
        self._registrations.maintain()
        self._collector.save()


def _alerting(options: cli.Settings) -> AlertingHealth | None:
    """The checks of the stack that alerts about runs, if there is one here."""
    if options.alerting is None or not (options.prometheus_url and options.alertmanager_url):
        return None
    urls = options.prometheus_url, options.alertmanager_url
    prometheus, alertmanager = (Client(url, options.password_file) for url in urls)
    return AlertingHealth(prometheus, alertmanager, options.alerting_disks, options.alerting)


def _discovery(options: cli.Settings, collector: Collector, registrations: Registrations) -> Discovery:
    allowlist, root = Allowlist(options.discovery_allow), options.discovery_root
    patterns, lists = [*options.discovery_files], [glob.escape(path) for path in options.discovery_lists]
    if options.discovery_ray:
        ray = Path(glob.escape(str(options.discovery_ray)))
        patterns.append(str(ray / VERL_FILE))
        lists.append(str(ray / RAY_FILE))
    files = [ListFiles(VERL_LIST, patterns, allowlist, root)]
    if lists:
        files.append(ListFiles(RAY_LIST, lists, allowlist, root))
    in_logs = LogTargets(allowlist)
    # The last one's labels count: anyone who may register must not take a server away from its run.
    discovery = Discovery(
        [registrations, *files, in_logs],
        allowlist,
        options.discovery_forget_after,
        AddressMap(options.loopback),
        lambda: collector.caught_up,
    )
    registrations.silence = discovery.silence
    collector.hangable += [source.thread for source in files]
    collector.listeners += [
        in_logs.update,
        lambda views, _: registrations.set_runs(collector.registered.shown(views)),
    ]
    return discovery
