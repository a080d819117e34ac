"""The parts that make up Stepwatch on one machine: each a process to keep running."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from exporter import credentials
from stepwatch.config import Config, cluster
from stepwatch.deploy.native import state
from stepwatch.deploy.native.installed import Grafana, grafana_environment
from stepwatch.deploy.native.state import DamagedStateError, State
from stepwatch.render import exporters, layout
from stepwatch.services import settings
from stepwatch.services.settings import Settings
from stepwatch.system.environment import CHECKOUT, RESOURCES
from stepwatch.system.programs import Program

RECEIVER = "receiver"
SENDER = "sender"
"""Prometheus in agent mode: another part than the one that stores and judges, with data of its own."""

AGENT_MODE = (("--enable-feature=agent",), ("--agent",))
"""The option for it: of Prometheus 2, and of later ones."""

_OURS = {"PYTHONPATH": str(CHECKOUT)}
"""The environment of programs that are ours."""


@dataclass(frozen=True)
class Web:
    """The pages of a part.

    It listens on ``ports`` of ``listen``, by their keys below ``ports`` in config.yaml, and others reach
    it at ``address`` (host:port). ``ready`` is the path of the page that answers once the part works,
    ``metrics`` that of its metrics, ``url`` the page for people.
    """

    listen: str
    ports: dict[str, int]
    address: str
    ready: str
    url: str
    metrics: str = "/metrics"
    scheme: str = "http"

    def page(self, path: str) -> str:
        """The URL of one of the part's own pages on this machine."""
        return f"{self.scheme}://{self.address}{path}"


@dataclass(frozen=True)
class Part:
    """A process to keep running; ``shows`` is what people see there, or what it does."""

    name: str
    command: tuple[str, ...]
    shows: str
    web: Web | None = None
    environment: dict[str, str] = field(default_factory=dict)
    settings: Settings | None = None

    @property
    def url(self) -> str:
        """The page for people, ``-`` if it has none."""
        return self.web.url if self.web else "-"

    @property
    def address(self) -> str:
        """host:port at which it is reached, empty if it has no pages."""
        return self.web.address if self.web else ""

    @property
    def ready(self) -> str:
        """The page that answers once it works, empty if it has none."""
        return self.web.page(self.web.ready) if self.web else ""

    @property
    def metrics(self) -> str:
        """The page of its own metrics, empty if it has none."""
        return self.web.page(self.web.metrics) if self.web else ""


_PARTS = TypeAdapter(list[Part])


def save(parts: Iterable[Part], path: Path) -> None:
    """Save which parts run."""
    state.write(path, _PARTS.dump_json(list(parts), indent=1).decode())


def load(path: Path) -> list[Part]:
    """Load them; none when nothing was started."""
    try:
        return _PARTS.validate_python(state.read(path, list) or [])
    except ValidationError:
        raise DamagedStateError(path) from None


@dataclass(frozen=True)
class Stack:
    """What the parts are made from; ``runs`` is a folder or glob, ``file`` is where ``config`` was read."""

    config: Config
    place: State
    runs: Path
    demo: bool = False
    file: Path | None = None

    def parts(
        self,
        prometheus: Program,
        alertmanager: Program,
        dashboards: Grafana | None = None,
        node_exporter: Path | None = None,
    ) -> list[Part]:
        """Every process, in the order in which data flows; not those of an agent."""
        return [
            *([self.trainers()] if self.demo else []),
            self.exporter(),
            self.gpu(),
            *([self.node(node_exporter)] if node_exporter else []),
            self.prometheus(prometheus),
            self.alertmanager(alertmanager),
            *([self.receiver(prometheus)] if self.config.is_hub else []),
            *([self.grafana(dashboards)] if dashboards else []),
            *([self.bridge()] if self.config.bridge else []),
        ]

    def agent_parts(self, prometheus: Program, node_exporter: Path | None = None) -> list[Part]:
        """The same of an agent: what reads this machine, and what sends it to the hub."""
        node = [self.node(node_exporter)] if node_exporter else []
        return [self.exporter(), self.gpu(), *node, self.sender(prometheus)]

    @property
    def simulated(self) -> Path:
        """The folder with the logs of the demo's runs."""
        return self.place.data("demo-runs")

    def trainers(self) -> Part:
        """The demo's simulated trainers."""
        log = (f"--log.level={self.config.log.level}", f"--log.format={self.config.log.format}")
        command = (sys.executable, "-m", "demo", f"--path={self.simulated}", *log)
        return Part("demo", command, f"simulated runs, in {self.simulated}/demo", environment=_OURS)

    def exporter(self) -> Part:
        """The run exporter, which reads the logs of training runs."""
        paths = [str(self.runs), *([str(self.simulated)] if self.demo else [])]
        listed = f"--discovery-lists={self.simulated}/.ray/prom_metrics_service_discovery.json"
        flags = (
            f"--state-dir={self.place.data('exporter')}",
            "--alerting-disks",
            *(str(self.place.data(part)) for part in ("prometheus", "alertmanager", "exporter")),
            *([listed] if self.demo else []),
            "--path",
            *paths,
        )
        return self._module("exporter", f"the runs in {' and '.join(paths)}", *flags, module="runs")

    def gpu(self) -> Part:
        """The GPU exporter, which says so where there is no GPU."""
        simulated = ("--backend=demo", "--sick=5", "--expected=0") if self.demo else ()
        shows = "simulated GPUs" if self.demo else "the GPUs of this machine"
        return self._module("gpu", shows, *simulated, page="/metrics")

    def node(self, program: Path) -> Part:
        """node_exporter, which reads this machine's memory, disks and load."""
        return self._part(
            "node",
            (str(program), f"--web.listen-address={self._host}:{self.config.ports.node}"),
            ready="/",
            page="/metrics",
            shows="memory, disks and load of this machine",
        )

    def prometheus(self, program: Program) -> Part:
        """Prometheus, which stores the numbers and judges the rules."""
        retention = self.config.retention
        start = ("sh", f"{RESOURCES}/prometheus/start.sh", str(self.place.data("prometheus")))
        options = (
            f"--config.file={self.place.rendered}/prometheus/generated/prometheus.yml",
            f"--storage.tsdb.path={self.place.data('prometheus')}",
            f"--storage.tsdb.retention.time={retention.time}",
            f"--storage.tsdb.retention.size={retention.size}",
            # An Alertmanager that starts again has every alert within a minute, evaluation included; without
            # Prometheus it keeps them for four times as long.
            "--rules.alert.resend-delay=45s",
            *(("--web.enable-remote-write-receiver",) if self.config.is_hub else ()),
        )
        return self._part(
            "prometheus",
            (*start, str(program.path), *program.options, *options, *self._protected("prometheus")),
            ready="/-/ready",
            shows="queries, targets, firing alerts",
        )

    def sender(self, program: Program) -> Part:
        """Prometheus in agent mode, which sends what it scrapes, and keeps what the hub does not take."""
        data = self.place.data(SENDER)
        options = (
            *AGENT_MODE[program.version >= (3, 0, 0)],
            f"--config.file={self.place.rendered}/prometheus/generated/prometheus.yml",
            f"--storage.agent.path={data}",
            f"--storage.agent.retention.max-time={cluster.BUFFER}",
            f"--web.listen-address={self._host}:{self.config.ports.prometheus}",
            f"--web.config.file={self.place.credentials / credentials.WEB}",
        )
        start = ("sh", f"{RESOURCES}/prometheus/start.sh", str(data))
        part = self._part(
            "prometheus",
            (*start, str(program.path), *program.options, *options),
            ready="/-/ready",
            shows=f"sends all samples to {self.config.hub_url} as {self.config.node_name}",
        )
        return replace(part, name=SENDER, web=part.web and replace(part.web, url="-"))

    def alertmanager(self, program: Program) -> Part:
        """Alertmanager, which groups, mutes and sends alerts."""
        options = (
            f"--config.file={self.place.rendered}/alertmanager/generated/alertmanager.yml",
            f"--storage.path={self.place.data('alertmanager')}",
            "--cluster.listen-address=",
            # What was sent is written down that often: after a crash it is not sent again.
            "--data.maintenance-interval=10s",
            # It counts its messages by receiver, which separates a test of one from a lost message.
            *(["--enable-feature=receiver-name-in-metrics"] if program.version >= (0, 27, 0) else []),
        )
        return self._part(
            "alertmanager",
            (str(program.path), *program.options, *options, *self._protected("alertmanager")),
            ready="/-/ready",
            shows="grouped alerts, silences",
        )

    def receiver(self, program: Program) -> Part:
        """Prometheus in agent mode on a hub: nodes write to it, and it forwards to the one that judges."""
        config, data = self.config, self.place.data(RECEIVER)
        scheme, _, address = config.receiver_url.partition("://")
        listen = f"[{config.agents.listen}]" if ":" in config.agents.listen else config.agents.listen
        options = (
            *AGENT_MODE[program.version >= (3, 0, 0)],
            f"--config.file={self.place.rendered}/prometheus/generated/receiver.yml",
            f"--storage.agent.path={data}",
            f"--storage.agent.retention.max-time={cluster.BUFFER}",
            "--web.enable-remote-write-receiver",
            f"--web.listen-address={listen}:{config.ports.agents}",
            f"--web.config.file={layout.credentials() / credentials.WEB}",
        )
        return Part(
            RECEIVER,
            (
                "sh",
                f"{RESOURCES}/prometheus/start.sh",
                str(data),
                str(program.path),
                *program.options,
                *options,
            ),
            "takes the samples of agents",
            Web(
                config.agents.listen, {"agents": config.ports.agents}, address, "/-/ready", "-", scheme=scheme
            ),
            settings=settings.by_part(self.place.rendered)[RECEIVER],
        )

    def grafana(self, installed: Grafana) -> Part:
        """Grafana with the provisioned dashboards."""
        data = self.place.data("grafana")
        return self._part(
            "grafana",
            (*installed.command, f"--homepath={installed.home}"),
            ready="/api/health",
            shows="dashboards",
            environment=grafana_environment(self.config, self.place, data),
        )

    def bridge(self) -> Part:
        """The bridge to chat robots, and the only part that acts on runs."""
        flags = (
            f"--state-dir={self.place.data('bridge')}",
            f"--evidence-dir={self.place.folder / 'evidence'}",
            *([f"--config-yaml={self.file.absolute()}"] if self.file else []),
        )
        names = ", ".join(receiver.name for receiver in self.config.receivers if receiver.robot)
        acts = "actions on runs" + " (dry run)" * self.config.actions.dry_run
        shows = [f"messages to {names}"] * bool(names) + [acts] * self.config.actions.enabled
        return self._module("bridge", "; ".join(shows), *flags, "--path", str(self.runs))

    def _listen(self, name: str) -> tuple[str, str]:
        return (f"--listen={self.config.listen}", f"--port={getattr(self.config.ports, name)}")

    def _module(self, name: str, shows: str, *flags: str, page: str = "/", module: str = "") -> Part:
        """A part that is ours, with a file of settings: ``exporter.<module>``, by default its name."""
        module = module or name
        command = self._ours(f"exporter.{module}", module, *self._listen(name), *flags)
        return self._part(name, command, ready="/-/healthy", page=page, shows=shows, environment=_OURS)

    def _ours(self, module: str, settings_file: str, *flags: str) -> tuple[str, ...]:
        file = self.place.rendered / exporters.FOLDER / f"{settings_file}.json"
        return (sys.executable, "-m", module, f"--config.file={file}", *flags)

    @property
    def _host(self) -> str:
        return f"[{self.config.listen}]" if ":" in self.config.listen else self.config.listen

    def _protected(self, name: str) -> tuple[str, ...]:
        return (
            f"--web.listen-address={self._host}:{getattr(self.config.ports, name)}",
            f"--web.config.file={self.place.credentials / credentials.WEB}",
            f"--web.external-url={self.config.link(name)}",
            # A path in the link is the business of the proxy in front; here pages stay where they are.
            "--web.route-prefix=/",
        )

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
        read = settings.by_part(self.place.rendered).get(name)
        return Part(name=name, command=command, web=web, settings=read, **others)
