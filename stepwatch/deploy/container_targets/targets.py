"""Targets of Prometheus (file_sd) made of containers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from stepwatch.config.deployment import HOST
from stepwatch.deploy.container_targets.container import ASKS, Container, Published, Wish, wish
from stepwatch.schema.errors import Refused

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  as Docker calls it
_FROM_CONTAINERS = {"0.0.0.0": HOST}  # noqa: S104  likewise; the host's name there is an IPv4 address


class Reach(Protocol):
    """What is asked of the place that a Prometheus is in."""

    def address(self, container: Container, port: int) -> str:
        """host:port at which it reaches a port of a container.

        Raises:
            Refused: It does not; says why, and the fix.
        """


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
            if host := _FROM_CONTAINERS.get(published.host) or _elsewhere(published):
                return f"{host}:{published.port}"
        raise _unreachable(container, port, self._why(container, port), self._fix(container, port))

    def _why(self, container: Container, port: int) -> str:
        shared = f"is in none of the networks of Prometheus ({', '.join(sorted(self.networks))}), and port"
        if container.published(port):
            return f"{shared} {port} is published for this machine itself only"
        return f"{shared} {port} is not published"

    def _fix(self, container: Container, port: int) -> str:
        join = f"`docker network connect {min(self.networks, default='bridge')} {container.name}`"
        return f"{join}, or start it with -p {port}:{port}"


@dataclass(frozen=True)
class FromMachine:
    """A Prometheus that is a process of this machine, to which it has the addresses in some networks."""

    networks: Collection[str]

    def address(self, container: Container, port: int) -> str:
        if container.on_host:
            return f"127.0.0.1:{port}"
        # Before the container's own address, which is another one at each start.
        if published := container.published(port):
            host, outside = published[0].host, published[0].port
            return f"{_EVERYWHERE.get(host) or _written(host)}:{outside}"
        for network, own in container.addresses.items():
            if network in self.networks:
                return f"{own}:{port}"
        why = f"has no address that leads there from this machine, and port {port} is not published"
        raise _unreachable(container, port, why, f"start it with -p 127.0.0.1:{port}:{port}")


def _elsewhere(published: Published) -> str:
    """The address that a port is published on, if it is one of this machine that others see."""
    if published.host == "::" or published.host.startswith("127.") or published.host == "::1":
        return ""
    return _written(published.host)


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _unreachable(container: Container, port: int, why: str, fix: str) -> Refused:
    if container.state == "restarting":
        why, fix = "is restarting and has no address", f"`docker logs {container.name}` says why"
    return Refused(f"it {why}. Expected: a way for Prometheus to port {port}. Fix: {fix}.")


@dataclass(frozen=True)
class Target:
    """A container that is scraped, at an address that its Prometheus reaches."""

    container: str
    address: str
    wish: Wish

    @property
    def group(self) -> dict[str, object]:
        """Itself as an entry of a target file."""
        labels = {
            "job": self.wish.job,
            # Its address changes with each start, and with the address everything that was known of it.
            "instance": f"{self.container}:{self.wish.scrape}",
            "role": self.wish.role,
            "container": self.container,
            "__metrics_path__": self.wish.path,
        }
        return {"targets": [self.address], "labels": labels}

    def __str__(self) -> str:
        return f"{self.container}: {self.wish.job}, at {self.address}{self.wish.path}, role {self.wish.role}"


@dataclass(frozen=True)
class Found:
    """The targets, and of each container that cannot be one, why: a line for each fault."""

    targets: tuple[Target, ...]
    faults: tuple[str, ...]

    @property
    def file(self) -> bytes:
        """The targets as a file of file_sd; with none of them it is a list still."""
        return (json.dumps([target.group for target in self.targets], indent=2) + "\n").encode()


def found(containers: Iterable[Container], reach: Reach) -> Found:
    """Make a target of each container that asks for it, in the order of their names."""
    targets, faults = [], []
    for container in sorted(containers, key=lambda each: each.name):
        if ASKS in container.labels:
            try:
                targets.append(_target(container, reach))
            except Refused as refusal:
                faults += [f"Container {container.name}: {line}" for line in str(refusal).splitlines()]
    return Found(tuple(targets), tuple(faults))


def _target(container: Container, reach: Reach) -> Target:
    asked = wish(container.labels)
    return Target(container.name, reach.address(container, asked.scrape), asked)
