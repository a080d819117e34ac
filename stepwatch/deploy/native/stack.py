"""The parts that make up Stepwatch on one machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exporter.door import backend_access
from stepwatch.config import Config
from stepwatch.config.deployment import BEHIND_DOOR
from stepwatch.deploy.native import grafana
from stepwatch.deploy.native.grafana import Grafana
from stepwatch.deploy.native.part import Part, Web
from stepwatch.deploy.native.state import State
from stepwatch.programs.programs import Program
from stepwatch.render import exporters
from stepwatch.render.layout import RESOURCES
from stepwatch.services import settings
from stepwatch.system.environment import CHECKOUT


@dataclass(frozen=True)
class Stack:
    """What the parts are made from.

    ``rendered`` holds the folders ``<service>/generated``, ``runs`` is the folder or glob that the exporter
    reads. ``demo``: with simulated runs, and simulated GPUs in place of this machine's own.
    """

    config: Config
    rendered: Path
    place: State
    runs: Path
    demo: bool = False

    def parts(
        self,
        prometheus: Program,
        alertmanager: Program,
        dashboards: Grafana | None = None,
        node_exporter: Path | None = None,
    ) -> list[Part]:
        """Every process to keep running, in the order in which data flows."""
        return [
            *([self.trainers()] if self.demo else []),
            self.exporter(),
            self.gpu(),
            *([self.node(node_exporter)] if node_exporter else []),
            self.prometheus(prometheus),
            self.alertmanager(alertmanager),
            self.door(),
            *([self.grafana(dashboards)] if dashboards else []),
            self.watchdog(("prometheus", "alertmanager", "exporter", *(["grafana"] if dashboards else []))),
        ]

    def trainers(self) -> Part:
        """The demo's simulated trainers."""
        command = (sys.executable, "-m", "demo", f"--path={self.simulated}")
        return Part("demo", command, f"simulated runs, in {self.simulated}/demo", environment=self._ours)

    def exporter(self) -> Part:
        """The run exporter, which reads the logs of training runs."""
        flags = [
            f"--listen={self.config.listen}",
            f"--port={self.config.ports.exporter}",
            f"--state-dir={self.place.data('exporter')}",
        ]
        paths = [str(self.runs), *([str(self.simulated)] if self.demo else [])]
        return self._part(
            "exporter",
            (sys.executable, "-m", "exporter.runs", self._settings("runs"), *flags, "--path", *paths),
            ready="/-/healthy",
            page="/",
            shows=f"the runs in {' and '.join(paths)}",
            environment=self._ours,
        )

    def gpu(self) -> Part:
        """The GPU exporter, which says so where there is no GPU."""
        flags = [f"--listen={self.config.listen}", f"--port={self.config.ports.gpu}"]
        flags += ["--backend=demo", "--sick=5", "--expected=0"] if self.demo else []
        return self._part(
            "gpu",
            (sys.executable, "-m", "exporter.gpu", self._settings("gpu"), *flags),
            ready="/-/healthy",
            page="/metrics",
            shows="simulated GPUs" if self.demo else "the GPUs of this machine",
            environment=self._ours,
        )

    def node(self, program: Path) -> Part:
        """node_exporter, which reads this machine's memory, disks and load."""
        listen = f"[{self.config.listen}]" if ":" in self.config.listen else self.config.listen
        return self._part(
            "node",
            (str(program), f"--web.listen-address={listen}:{self.config.ports.node}"),
            ready="/",
            page="/metrics",
            shows="memory, disks and load of this machine",
        )

    def prometheus(self, program: Program) -> Part:
        """Prometheus, which stores the numbers and judges the rules."""
        folder = self.rendered / "prometheus/generated"
        data = self.place.data("prometheus")
        retention = self.config.retention
        options = (
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={data}",
            f"--storage.tsdb.retention.time={retention.time}",
            f"--storage.tsdb.retention.size={retention.size}",
            # An Alertmanager that starts again has every alert within a minute, evaluation included; without
            # Prometheus it keeps them for four times as long.
            "--rules.alert.resend-delay=45s",
        )
        return self._part(
            "prometheus",
            (
                *("sh", f"{RESOURCES}/prometheus/start.sh", str(data)),
                *(str(program.path), *program.options, *options, *self._web("prometheus")),
            ),
            ready="/-/ready",
            shows="queries, targets and every alert that fires",
        )

    def alertmanager(self, program: Program) -> Part:
        """Alertmanager, which groups, mutes and sends alerts."""
        folder = self.rendered / "alertmanager/generated"
        data = self.place.data("alertmanager")
        options = (
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={data}",
            "--cluster.listen-address=",
            # What was sent is written down that often: after a crash it is not sent again.
            "--data.maintenance-interval=10s",
            # It counts its messages by receiver, which separates a test of one from a lost message.
            *(["--enable-feature=receiver-name-in-metrics"] if program.version >= (0, 27, 0) else []),
        )
        return self._part(
            "alertmanager",
            (
                *("sh", f"{RESOURCES}/alertmanager/start.sh", str(data)),
                *(str(program.path), *program.options, *options, *self._web("alertmanager")),
            ),
            ready="/-/ready",
            shows="alerts in groups, silences",
        )

    def door(self) -> Part:
        """The reverse proxy through which all but Prometheus reach the two."""
        config = self.config
        flags = [
            f"--listen={config.listen}",
            f"--prometheus-port={config.ports.prometheus}",
            f"--alertmanager-port={config.ports.alertmanager}",
            f"--prometheus={config.backend('prometheus')}",
            f"--alertmanager={config.backend('alertmanager')}",
            f"--password-file={self.place.backend_password}",
        ]
        web = Web(
            listen=config.listen,
            ports={name: getattr(config.ports, name) for name in BEHIND_DOOR},
            address=config.address("prometheus"),
            ready="/-/door/healthy",
            url="-",
            metrics="/-/door/metrics",
        )
        return Part(
            "door",
            (sys.executable, "-m", "exporter.door", self._settings("door"), *flags),
            "Prometheus and Alertmanager to all but foreign web pages",
            web,
            environment=self._ours,
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

    def watchdog(self, watched: tuple[str, ...]) -> Part:
        """The watchdog, which finds what keeps Prometheus from alerting; ``watched`` are parts with state."""
        flags = [f"--listen={self.config.listen}", f"--port={self.config.ports.watchdog}"]
        flags.append(f"--supervisor={self.place.socket.name}")  # relative to supervisord's working directory
        folders = [f"{name}={self.place.data(name)}" for name in watched]
        return self._part(
            "watchdog",
            (
                sys.executable,
                "-m",
                "exporter.watchdog",
                self._settings("watchdog"),
                *flags,
                "--state",
                *folders,
            ),
            ready="/-/healthy",
            page="/api/v1/findings",
            shows="what keeps the stack from alerting",
            environment=self._ours,
        )

    @property
    def simulated(self) -> Path:
        """The folder with the logs of the demo's runs."""
        return self.place.data("demo-runs")

    @property
    def _ours(self) -> dict[str, str]:
        return {"PYTHONPATH": str(CHECKOUT)}

    def _settings(self, name: str) -> str:
        return f"--config.file={self.rendered / exporters.FOLDER / name}.json"

    def _part(
        self, name: str, command: tuple[str, ...], *, ready: str, page: str = "", **others: Any
    ) -> Part:
        config = self.config
        web = Web(
            listen=config.listen,
            ports={name: getattr(config.ports, name)},
            address=config.address(name),
            ready=ready,
            url=config.link(name) + page,
        )
        if name in BEHIND_DOOR:
            key, backend = f"{name}_backend", config.backend(name)
            web = replace(
                web,
                listen=backend.partition(":")[0],
                ports={key: getattr(config.ports, key)},
                backend=backend,
                password_file=str(self.place.backend_password),
            )
        read = settings.by_part(self.rendered).get(name)
        return Part(name=name, command=command, web=web, settings=read, **others)

    def _web(self, name: str) -> tuple[str, ...]:
        return (
            f"--web.listen-address={self.config.backend(name)}",
            f"--web.config.file={self.place.backend / backend_access.WEB}",
            f"--web.external-url={self.config.link(name)}",
            # A path in the link is the business of the proxy in front; here pages stay where they are.
            "--web.route-prefix=/",
        )
