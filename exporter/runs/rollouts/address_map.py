"""How an address is reached: from a container, loopback is not that of the machine."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address

from exporter.runs.rollouts.address import LOCALHOST


class Way:
    """``loopback`` is the name by which containers reach the machine that they run on; empty outside."""

    def __init__(self, loopback: str = "") -> None:
        self._loopback = loopback
        self._host = _resolved(loopback)

    def of_prometheus(self, address: str) -> str:
        """What Prometheus is to connect to."""
        host, port = _parts(address)
        return f"{self._loopback}:{port}" if self._loopback and ip_address(host).is_loopback else address

    def of_ours(self, address: str) -> tuple[str, int]:
        """What we are to connect to: an IP address and a port."""
        host, port = _parts(address)
        return (self._host if self._loopback and ip_address(host).is_loopback else host), port


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _resolved(name: str) -> str:
    """The name stands in the container's own table of hosts; without it there is no such way."""
    with suppress(OSError):
        return socket.gethostbyname(name) if name else LOCALHOST
    return LOCALHOST
