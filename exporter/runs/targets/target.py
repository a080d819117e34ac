"""What Prometheus may be sent to: an IP address and a port within the allowed networks.

No names: what a name stands for can change after it was checked. No scheme and no path either.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from exporter.runs.files.notice import Once
from exporter.secret_shapes import masked

logger = logging.getLogger(__name__)
ROLLOUT, RAY, TRAINER = "rollout", "ray", "trainer"
"""Roles: what a server is for. EngineGone reports a lost rollout server, RayNodeLost a part of Ray."""
METRICS_PATH = "/metrics"
USUAL = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""Loopback and private networks (RFC 1918, RFC 4193).

Link-local addresses are not part of it, since clouds answer there with a machine's credentials, nor is
100.64.0.0/10 (RFC 6598), which belongs to the provider of a network and not to its user.
"""
METADATA = tuple(map(ip_network, ("fd00:ec2::/32", "fd20:ce::/32", "fd00:c1::/32")))
"""Where clouds serve credentials inside the private range fc00::/7: AWS (fd00:ec2::254), Google Cloud
(fd20:ce::254) and Oracle (fd00:c1::a9fe:a9fe), as their documentation of instance metadata says. Allowing
a wider network does not allow these; only a network inside one of them does.
"""
LONGEST = 60  # characters: an IPv6 address has at most 39, in brackets and with a port 47
MOST = 5000  # addresses of one list, and targets in all: more than any cluster has
_LOCALHOST = "127.0.0.1"
_SHAPE = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|localhost)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Target:
    """A server as one source reports it. ``over``: it leaves once it takes no connection."""

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    path: str = METRICS_PATH
    over: bool = False


class AddressError(ValueError):
    """Raised for an address that is invalid or not allowed; its text says what was expected."""


class Allowed:
    """The networks that targets may lie in."""

    def __init__(self, networks: Iterable[str] = USUAL) -> None:
        self._networks = tuple(map(ip_network, networks))

    def __str__(self) -> str:  # in --help
        return json.dumps([str(network) for network in self._networks])

    def checked(self, text: str) -> str:
        """Return the address and port in their one usual spelling. Raises AddressError."""
        host, port = None, 0
        if len(text) <= LONGEST and (found := _SHAPE.fullmatch(text)):
            with suppress(ValueError):
                host = ip_address(_LOCALHOST if found[2] == "localhost" else found[1] or found[2])
                host, port = getattr(host, "ipv4_mapped", None) or host, int(found[3])
        if host is None or not 0 < port < 65536 or host.is_unspecified or host.is_multicast:
            shown = masked(text).rpartition("@")[2][:LONGEST]
            raise AddressError(f"{shown!r} is not an IP address with a port, such as 10.0.0.7:8000")
        least = max((cloud.prefixlen for cloud in METADATA if host in cloud), default=0)
        if not any(host in network and network.prefixlen >= least for network in self._networks):
            raise AddressError(
                f"{text} is in none of the allowed networks. Fix: if the network is yours, add it to "
                "discovery.allow in config.yaml"
            )
        return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


class Allowlist:
    """Passes on the addresses that are allowed; ``counts`` are the faults by source and reason."""

    def __init__(self, allowed: Allowed) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._allowed, self._once = allowed, Once(logger)

    def passed(self, source: str, place: object, addresses: Sequence[str]) -> tuple[str, ...]:
        """Return the addresses of a list that are allowed, each once; ``place`` is where the list stands."""
        if len(addresses) > MOST:
            words = f"{place} lists {len(addresses)} servers; only the first {MOST} are used"
            self.note(source, "too_many", words)
        passed: dict[str, None] = {}
        for address in addresses[:MOST]:
            try:
                passed[self._allowed.checked(address)] = None
            except AddressError as problem:  # noqa: PERF203  (one bad address must not end the list)
                self.note(source, "address", f"{place}: {problem}")
        return tuple(passed)

    def note(self, source: str, reason: str, words: str, fault: Exception | None = None) -> None:
        """Count a fault and log it; ``words`` say where, what, and the fix. ``fault``: it is one of ours."""
        self.counts[source, reason] += 1
        self._once.warn((source, reason), f"{source}: {words}.", fault)


class AddressMap:
    """``loopback`` is the name by which containers reach their host; empty outside."""

    def __init__(self, loopback: str = "") -> None:
        self._loopback, self._host = loopback, _LOCALHOST
        with suppress(OSError):  # the name stands in the container's own table of hosts, or nowhere
            self._host = socket.gethostbyname(loopback or _LOCALHOST)

    def of_prometheus(self, address: str) -> str:
        """Return the address for Prometheus to connect to."""
        host, _, port = address.rpartition(":")
        mapped = self._loopback and ip_address(host.strip("[]")).is_loopback
        return f"{self._loopback}:{port}" if mapped else address

    def of_ours(self, address: str) -> tuple[str, int]:
        """Return the IP address and port to connect to."""
        host, _, port = address.rpartition(":")
        mapped = self.of_prometheus(address) != address
        return (self._host if mapped else host.strip("[]")), int(port)
