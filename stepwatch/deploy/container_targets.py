"""Containers that ask by their labels to be scraped, as a file of targets of Prometheus (file_sd)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError

from stepwatch.config import deployment, reference
from stepwatch.config.deployment import DISCOVERED, HOST, TARGETS
from stepwatch.deploy.native import supervisord
from stepwatch.deploy.native.state import State
from stepwatch.render import output
from stepwatch.schema.errors import Fault, Problem, Refused
from stepwatch.schema.path_types import MetricsPath
from stepwatch.schema.scalars import JobName, Role
from stepwatch.schema.section import Section
from stepwatch.system.environment import CHECKOUT

PREFIX = "stepwatch."
ASKS = f"{PREFIX}scrape"

_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


def _port(value: Any) -> int:
    if _PORT.fullmatch(value) and 0 < int(value) < 65536:
        return int(value)
    raise Fault(
        "is not a port",
        expected="a port of the container, from 1 to 65535",
        fix="start it with only the port number in this label",
    )


class Labels(Section):
    """The labels of one container: the port inside it, and what becomes of its target."""

    scrape: Annotated[int, PlainValidator(_port)]
    path: MetricsPath = "/metrics"
    job: JobName = "docker"
    role: Role = "other"


def requested(labels: Mapping[str, str]) -> Labels:
    """Return what labels ask for; those that are not ours do not matter. Raises Refused."""
    ours = {name.removeprefix(PREFIX): text for name, text in labels.items() if name.startswith(PREFIX)}
    try:
        return Labels.model_validate(ours)
    except ValidationError as error:
        lines = (f"label {PREFIX}{Problem(None, fault)}" for fault in reference.faults(error, Labels))
        raise Refused("\n".join(lines)) from error


@dataclass(frozen=True)
class Published:
    """A port of a container, ``inside``, that this machine has at ``host`` and ``port``."""

    inside: int
    host: str
    port: int


@dataclass(frozen=True)
class Container:
    """A container by its name; ``addresses`` are those of its own, by network, IPv6 ones in brackets.

    ``state`` is Docker's word: running, paused or restarting. One that is ``on_host`` has no network of
    its own but this machine's. ``mounts`` are folders of this machine, by where the container sees them.
    """

    name: str
    state: str
    labels: Mapping[str, str]
    on_host: bool
    addresses: Mapping[str, str]
    ports: tuple[Published, ...]
    mounts: Mapping[str, str]

    def published(self, port: int) -> list[Published]:
        """Where this machine has a port of the container."""
        return [each for each in self.ports if each.inside == port]


def containers(answer: Iterable[Mapping[str, Any]]) -> list[Container]:
    """Every container of a list as the Engine's API gives it (`GET /containers/json`)."""
    by_id = {each["Id"]: each for each in answer}
    found = []
    for item in by_id.values():
        # One may have been started in the network of another container.
        kind, _, other = _mode(item).partition(":")
        network = by_id.get(other, {}) if kind == "container" else item
        # Links give a container more names, below those of others: /web/database.
        names = (name.removeprefix("/") for name in item["Names"] or [])
        ports = [
            Published(port["PrivatePort"], port.get("IP") or "0.0.0.0", port["PublicPort"])  # noqa: S104  what no address means
            for port in network.get("Ports") or []
            if port.get("PublicPort") and port["Type"] == "tcp"
        ]
        found.append(
            Container(
                name=next((name for name in names if "/" not in name), item["Id"][:12]),
                state=item["State"],
                labels=item["Labels"] or {},
                on_host=_mode(network) == "host",
                addresses=dict(_addresses(network)),
                ports=tuple(sorted(ports, key=lambda port: ":" in port.host)),  # IPv4 first
                mounts={mount["Destination"]: mount["Source"] for mount in item.get("Mounts") or []},
            )
        )
    return found


def _mode(item: Mapping[str, Any]) -> str:
    mode: str = item.get("HostConfig", {}).get("NetworkMode", "")
    return mode


def _addresses(network: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    networks = network.get("NetworkSettings", {}).get("Networks") or {}
    for name, end in sorted(networks.items()):
        if end.get("IPAddress"):
            yield name, end["IPAddress"]
        elif end.get("GlobalIPv6Address"):
            yield name, f"[{end['GlobalIPv6Address']}]"


@dataclass(frozen=True)
class FromContainer:
    """A Prometheus in a container, which is in these networks."""

    networks: Collection[str]

    def address(self, container: Container, port: int) -> str:
        if container.on_host:
            return f"{HOST}:{port}"
        for network, own in container.addresses.items():
            if network in self.networks:
                return f"{own}:{port}"
        for published in container.published(port):
            if published.host == "0.0.0.0":  # noqa: S104  as Docker calls all addresses, here of IPv4
                return f"{HOST}:{published.port}"
            # Other machines' way in is Prometheus's as well.
            if published.host not in ("::", "::1") and not published.host.startswith("127."):
                return f"{_written(published.host)}:{published.port}"
        networks = ", ".join(sorted(self.networks))
        missing = "published for this machine only" if container.published(port) else "not published"
        why = f"is in none of the networks of Prometheus ({networks}), and port {port} is {missing}"
        join = f"`docker network connect {min(self.networks, default='bridge')} {container.name}`"
        raise _unreachable(container, port, why, f"{join}, or start it with -p {port}:{port}")


@dataclass(frozen=True)
class FromMachine:
    """A Prometheus that is a process of this machine, to which it has the addresses in some networks."""

    networks: Collection[str]

    def address(self, container: Container, port: int) -> str:
        if container.on_host:
            return f"127.0.0.1:{port}"
        # Before the container's own address, which is another one at each start.
        if published := container.published(port):
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(published[0].host, published[0].host)  # noqa: S104
            return f"{_written(host)}:{published[0].port}"
        for network, own in container.addresses.items():
            if network in self.networks:
                return f"{own}:{port}"
        why = f"has no address that is reachable from this machine, and port {port} is not published"
        raise _unreachable(container, port, why, f"start it with -p 127.0.0.1:{port}:{port}")


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _unreachable(container: Container, port: int, why: str, fix: str) -> Refused:
    if container.state == "restarting":
        why, fix = "is restarting and has no address", f"`docker logs {container.name}` says why"
    return Refused(f"it {why}. Expected: a route from Prometheus to port {port}. Fix: {fix}.")


@dataclass(frozen=True)
class Target:
    """A container that is scraped, at an address that its Prometheus reaches."""

    container: str
    address: str
    labels: Labels

    @property
    def group(self) -> dict[str, object]:
        """Itself as an entry of a target file."""
        labels = {
            "job": self.labels.job,
            # Its address changes with each start, and with the address everything that was known of it.
            "instance": f"{self.container}:{self.labels.scrape}",
            "role": self.labels.role,
            "container": self.container,
            "__metrics_path__": self.labels.path,
        }
        return {"targets": [self.address], "labels": labels}

    def __str__(self) -> str:
        job, path, role = self.labels.job, self.labels.path, self.labels.role
        return f"{self.container}: {job}, at {self.address}{path}, role {role}"


@dataclass(frozen=True)
class Found:
    """The targets, and of each container that cannot be one, why: a line for each fault."""

    targets: tuple[Target, ...]
    faults: tuple[str, ...]

    @property
    def file(self) -> bytes:
        """The targets as a file of file_sd; with none of them it is a list still."""
        return (json.dumps([target.group for target in self.targets], indent=2) + "\n").encode()


Reach = FromContainer | FromMachine


def found(containers: Iterable[Container], prometheus: Reach) -> Found:
    """Make a target of each container that asks for it, in the order of their names."""
    targets, faults = [], []
    for container in sorted(containers, key=lambda each: each.name):
        if ASKS in container.labels:
            try:
                asked = requested(container.labels)
                targets.append(Target(container.name, prometheus.address(container, asked.scrape), asked))
            except Refused as refusal:
                faults += [f"Container {container.name}: {line}" for line in str(refusal).splitlines()]
    return Found(tuple(targets), tuple(faults))


_ANSWER_SECONDS = 15
"""What the SDK calls any socket of this machine."""

_LOGIN = re.compile(r"//[^/@\s]*@")
_NOT_THERE = "start Docker, or name its socket in DOCKER_HOST"
_FIXES: dict[type[BaseException], str] = {
    PermissionError: "run this as root, or as a user of the group that the socket belongs to (often docker)",
    FileNotFoundError: _NOT_THERE,
    ConnectionRefusedError: _NOT_THERE,
}
FILE = "docker.json"


@dataclass(frozen=True)
class Answer:
    """What runs, and in which networks the addresses of containers lead there from this machine."""

    containers: tuple[Container, ...]
    networks: frozenset[str]


def discover(place: State) -> tuple[Path, Found]:
    """Write the targets that containers declare; return the file and its contents. Raises Refused."""
    answer = ask()
    folder, prometheus = _prometheus(place, answer)
    result = found(answer.containers, prometheus)
    with output.locked(folder):
        output.replace_file(folder / FILE, result.file)
    return folder / FILE, result


def _prometheus(place: State, answer: Answer) -> tuple[Path, Reach]:
    """The folder in which the running Prometheus looks for discovered targets, and what it reaches."""
    if supervisord.living(place):
        return place.discovered, FromMachine(answer.networks)
    for container in answer.containers:
        checkout = container.labels.get("com.docker.compose.project.working_dir", "")
        service = container.labels.get("com.docker.compose.service")
        # Its networks and its mount are asked for: variables and override files of Compose may change both.
        source = container.mounts.get(TARGETS)
        if service == "prometheus" and source and Path(checkout).resolve() == CHECKOUT:
            targets = Path(source)
            folder = targets / DISCOVERED
            deployment.require(folder if folder.is_dir() else targets, targets)
            return folder, FromContainer(container.addresses.keys())
    raise Refused(
        f"No Prometheus of {CHECKOUT} is running, so its reachable targets are unknown. Expected: a running "
        "stack. Fix: run `make up`, then this command again. Nothing was changed."
    )


def ask() -> Answer:
    """Query the running containers. Raises Refused if no daemon of this machine answers."""
    try:
        import docker  # noqa: PLC0415  it takes longer to import than all else of generate.py
    except ImportError as error:
        raise Refused(
            "The Docker SDK for Python (package docker) is not installed. "
            "Fix: `make discover`, which sets up .venv. Nothing was changed."
        ) from error
    try:
        client = docker.from_env(timeout=_ANSWER_SECONDS)
    except Exception as error:
        # Over variables and a ~/.docker/config.json that are odd the SDK fails in any way.
        raise _no_answer(error) from error
    try:
        with closing(client):
            if client.api.base_url != "http+docker://localhost":
                raise Refused(
                    f"{_host()} is not a socket of this machine; containers of another machine cannot be "
                    "reached from here. Expected: unix:///path/to/docker.sock. "
                    "Fix: run this where that daemon is. Nothing was changed."
                )
            info = client.api.info()
            rootless = "name=rootless" in (info.get("SecurityOptions") or ())
            bridges: list[str] = []
            # A Docker in a machine or a namespace of its own has no bridge on this machine.
            if not rootless and info["OperatingSystem"] != "Docker Desktop":
                bridges = [each["Name"] for each in client.api.networks() if each["Driver"] == "bridge"]
            return Answer(tuple(containers(client.api.containers())), frozenset(bridges))
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise _no_answer(error) from error


def _no_answer(error: Exception) -> Refused:
    system: BaseException | None = error
    while system and type(system) not in _FIXES:
        system = system.__cause__ or system.__context__
    why = getattr(system, "strerror", None) or _LOGIN.sub("//", str(error)).partition("\n")[0].rstrip(".")
    fix = _FIXES[type(system)] if system else "see whether `docker version` answers"
    return Refused(
        f"No Docker daemon answers at {_host()}: {why}. Expected: a Docker Engine that this user may ask. "
        f"Fix: {fix}. Nothing was changed."
    )


def _host() -> str:
    return _LOGIN.sub("//", os.environ.get("DOCKER_HOST") or "its usual socket")
