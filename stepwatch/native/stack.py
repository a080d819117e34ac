"""The parts that make up Stepwatch on one machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwatch.config import Config
from stepwatch.native import grafana
from stepwatch.native.grafana import Grafana
from stepwatch.native.part import Part
from stepwatch.native.settings import Settings
from stepwatch.native.state import State
from stepwatch.programs import Program


@dataclass(frozen=True)
class Stack:
    """What the parts are made from.

    ``checkout`` holds the exporter's code, ``rendered`` the folders ``<service>/generated``,
    ``runs`` is the folder or glob that the exporter reads.
    """

    config: Config
    checkout: Path
    rendered: Path
    place: State
    runs: Path

    def parts(self, prometheus: Program, alertmanager: Program, dashboards: Grafana | None) -> list[Part]:
        """Every process to keep running, in the order in which data flows."""
        parts = [self.exporter(), self.prometheus(prometheus), self.alertmanager(alertmanager)]
        return [*parts, self.grafana(dashboards)] if dashboards else parts

    def exporter(self) -> Part:
        """The run exporter, which reads the logs of training runs."""
        config = self.config
        stalled = config.alerts.Stalled
        options = {
            "path": self.runs,
            "listen": config.listen,
            "port": config.ports.exporter,
            "state-dir": self.place.data("exporter"),
            # As long as a scrape may fail twice and still see what happened.
            "hold": 3 * config.intervals.runs.seconds,
            "forget-after": config.runs.forget_after.seconds,
            "silence": stalled.silence.seconds,
            "silence-intervals": stalled.intervals,
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        return self._part(
            "exporter",
            (sys.executable, "-m", "exporter.runs", *flags),
            ready="/-/healthy",
            page="/metrics",
            shows="what is read from the runs",
            environment={"PYTHONPATH": str(self.checkout)},
        )

    def prometheus(self, program: Program) -> Part:
        """Prometheus, which stores the numbers and judges the rules."""
        folder = self.rendered / "prometheus/generated"
        retention = self.config.retention
        options = (
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={self.place.data('prometheus')}",
            f"--storage.tsdb.retention.time={retention.time}",
            f"--storage.tsdb.retention.size={retention.size}",
        )
        return self._part(
            "prometheus",
            (str(program.path), *program.options, *options, *self._web("prometheus")),
            ready="/-/ready",
            shows="queries, targets and every alert that fires",
            # It watches the targets' files itself.
            settings=Settings(str(folder), ("prometheus.yml", "rules/*"), "prometheus_config_last_reload"),
        )

    def alertmanager(self, program: Program) -> Part:
        """Alertmanager, which groups, mutes and sends alerts."""
        folder = self.rendered / "alertmanager/generated"
        options = (
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={self.place.data('alertmanager')}",
            "--cluster.listen-address=",
            # What was sent is written down that often: after a crash it is not sent again.
            "--data.maintenance-interval=10s",
        )
        return self._part(
            "alertmanager",
            (str(program.path), *program.options, *options, *self._web("alertmanager")),
            ready="/-/ready",
            shows="alerts in groups, silences",
            settings=Settings(str(folder), ("*",), "alertmanager_config_last_reload"),
        )

    def grafana(self, installed: Grafana) -> Part:
        """Grafana with the provisioned dashboards."""
        data = self.place.data("grafana")
        return self._part(
            "grafana",
            (*installed.command, f"--homepath={installed.home}"),
            ready="/api/health",
            shows=f"dashboards; user admin, password in {grafana.password(data)}",
            environment=grafana.environment(self.config, self.rendered, data),
        )

    def _part(self, name: str, command: tuple[str, ...], *, page: str = "", **others: Any) -> Part:
        return Part(
            name=name,
            command=command,
            listen=self.config.listen,
            port=getattr(self.config.ports, name),
            address=self.config.address(name),
            url=self.config.link(name) + page,
            **others,
        )

    def _web(self, name: str) -> tuple[str, ...]:
        listen, port = self.config.listen, getattr(self.config.ports, name)
        return (
            f"--web.listen-address={f'[{listen}]' if ':' in listen else listen}:{port}",
            f"--web.external-url={self.config.link(name)}",
            # A path in the link is the business of the proxy in front; here pages stay where they are.
            "--web.route-prefix=/",
        )
