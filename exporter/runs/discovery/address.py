"""Which addresses Prometheus may be sent to: an IP address and a port, within the allowed networks.

No names: what a name stands for can change after it was checked. No scheme and no path either.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from exporter.runs.files.notice import Once
from exporter.secret_shapes import masked


class AddressMap:
    """``loopback`` is the name by which containers reach the machine that they run on; empty outside."""

    def __init__(self, loopback: str = "") -> None:
        self._loopback = loopback
        self._host = _resolved(loopback)

    def of_prometheus(self, address: str) -> str:
        """What Prometheus is to connect to."""
        host, port = _halves(address)
        return f"{self._loopback}:{port}" if self._loopback and ip_address(host).is_loopback else address

    def of_ours(self, address: str) -> tuple[str, int]:
        """What we are to connect to: an IP address and a port."""
        host, port = _halves(address)
        return (self._host if self._loopback and ip_address(host).is_loopback else host), port


def _halves(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _resolved(name: str) -> str:
    """The name stands in the container's own table of hosts; without it there is no such way."""
    with suppress(OSError):
        return socket.gethostbyname(name) if name else LOCALHOST
    return LOCALHOST


logger = logging.getLogger(__name__)

MOST = 5000
"""Addresses of one list, and targets in all: more than any cluster has."""


class Allowlist:
    """``counts`` what was refused, by source and reason."""

    def __init__(self, allowed: Allowed) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._allowed, self._once = allowed, Once(logger)

    def passed(self, source: str, place: object, addresses: Sequence[str]) -> tuple[str, ...]:
        """Those of a list that are allowed, each once. ``place`` is where the list stands."""
        if len(addresses) > MOST:
            self.note(source, "too_many", f"{place} lists {len(addresses)} servers; the first {MOST} count")
        return tuple(dict.fromkeys(self._allowed_of(source, place, addresses[:MOST])))

    def _allowed_of(self, source: str, place: object, addresses: Iterable[str]) -> Iterable[str]:
        for address in addresses:
            try:
                yield self._allowed.checked(address)
            except AddressError as problem:  # noqa: PERF203  (one bad address must not end the list)
                self.note(source, "address", f"{place}: {problem}")

    def note(self, source: str, reason: str, words: str, fault: Exception | None = None) -> None:
        """Count it; ``words`` say where, what, and the fix. ``fault``: it is one of ours."""
        self.counts[source, reason] += 1
        self._once.warn((source, reason), f"{source}: {words}.", fault)


USUAL = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""Loopback and private networks (RFC 1918, RFC 4193).

Link-local addresses are no part of it, since clouds answer there with a machine's credentials, nor is
100.64.0.0/10 (RFC 6598), which belongs to the provider of a network and not to its user.
"""

METADATA = tuple(map(ip_network, ("fd00:ec2::/32", "fd20:ce::/32", "fd00:c1::/32")))
"""Where clouds serve credentials inside the private range fc00::/7: AWS (fd00:ec2::254), Google Cloud
(fd20:ce::254) and Oracle (fd00:c1::a9fe:a9fe), as their documentation of instance metadata says. Allowing
a wider network does not allow these; only a network inside one of them does.
"""

LOCALHOST = "127.0.0.1"
LONGEST = 60
"""Characters: an IPv6 address has at most 39, in brackets and with a port 47."""

_SHAPE = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|localhost)):([0-9]{1,5})")


class AddressError(ValueError):
    """Raised for what is not an address, or none that is allowed; its text says what was expected."""


class Allowed:
    """The networks that targets may lie in."""

    def __init__(self, networks: Iterable[str] = USUAL) -> None:
        self._networks = tuple(map(ip_network, networks))

    def __str__(self) -> str:
        return json.dumps([str(network) for network in self._networks])

    def checked(self, text: str) -> str:
        """The address and port in their one usual spelling.

        Raises:
            AddressError: it is none, or lies in no allowed network.
        """
        host, port = _parts(text)
        if not any(host in network and not _holds_metadata(network, host) for network in self._networks):
            raise AddressError(
                f"{text} lies in none of the allowed networks. "
                "Fix: add its network to discovery.allow in config.yaml, if it is yours"
            )
        return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def _holds_metadata(network: IPv4Network | IPv6Network, host: IPv4Address | IPv6Address) -> bool:
    """Is the host in a cloud's metadata network that the allowed network is wider than?"""
    return any(host in cloud and network.prefixlen < cloud.prefixlen for cloud in METADATA)


def _parts(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    found = _SHAPE.fullmatch(text) if len(text) <= LONGEST else None
    try:
        host = _host(found[1] or found[2]) if found else None
    except ValueError:
        host = None
    port = int(found[3]) if found else 0
    if host is None or host.is_unspecified or host.is_multicast or not 0 < port < 65536:
        shown = masked(text).rpartition("@")[2][:LONGEST]
        raise AddressError(f"{shown!r} is no IP address with a port, such as 10.0.0.7:8000")
    return host, port


def _host(text: str) -> IPv4Address | IPv6Address:
    host = ip_address(LOCALHOST if text == "localhost" else text)
    mapped = host.ipv4_mapped if isinstance(host, IPv6Address) else None
    return mapped or host
