"""At which address a Prometheus reaches a container: that depends on where the two of them are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from stepwatch.config.deployment import HOST
from stepwatch.deploy.discovery.container import Container, Published
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
