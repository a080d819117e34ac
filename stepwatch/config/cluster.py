"""More than one machine: the sections `hub` and `agents`, and what fits which `role`."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from exporter.credentials import INTERNAL
from stepwatch.config.sections import Login
from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.path_types import KeyFile, Link, ListenAddress, ServerUrl, TrustFile
from stepwatch.schema.scalars import Duration
from stepwatch.schema.section import Checked, Section, default, require_both

if TYPE_CHECKING:
    from stepwatch.config.models import Config

ALL, HUB, AGENT = "all", "hub", "agent"

CREDENTIALS = "agents"
"""The folder in `secrets/` with the users of the hub's receiver."""

BUFFER = Duration.parse("12h")
"""How long an agent keeps what the hub has not taken."""

OUT_OF_ORDER = Duration.parse("16h")
"""How late samples may reach the hub: agents drop old ones every two hours, and some the next time."""

NODE = "node"
"""The label that tells nodes apart: an agent puts it on all that it sends."""

NODE_NAME = re.compile(rf"(?!\.|{INTERNAL}\Z)[A-Za-z0-9._-]{{1,63}}")
"""A node's name, which is that of its user on the hub too; the hub's own is another."""

_NAME_EXPECTED = "up to 63 letters, digits and any of . _ -, without a leading dot"


def _node(value: Any) -> str:
    if isinstance(value, str) and NODE_NAME.fullmatch(value):
        return value
    raise Fault("is not the name of a node", expected=_NAME_EXPECTED, fix="write a name such as node-7")


NodeName = Annotated[str, Checked(_node)]


def own_name() -> str:
    """Return the host name of this machine, as the name of its node. Raises Fault if it cannot be one."""
    name = socket.gethostname()
    try:
        return _node(name)
    except Fault:
        raise Fault(
            "is the host name of this machine, and not the name of a node",
            expected=_NAME_EXPECTED,
            fix="set node",
            value=name,
        ) from None


def is_loopback(host: str | None) -> bool:
    """Return whether a host, as in a URL, is this machine itself."""
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host is not None and (host == "localhost" or host.endswith(".localhost"))


def write_url(url: str) -> str:
    """Return where remote write goes; without a path it is that of Prometheus."""
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/api/v1/write"


def _hub_url(value: Any) -> str:
    parts = urlsplit(value)
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise Fault(
            "would send the password or token over the network in clear text",
            expected="https:// for a hub on another machine",
            fix="give the hub a certificate (agents.cert_file there), and write https://",
        )
    return str(value)


class Hub(Login):
    """Where an agent sends its samples: a hub, or any system that takes Prometheus' remote write."""

    url: Annotated[ServerUrl, AfterValidator(_hub_url)] | None = default(
        None,
        "The remote write URL, such as https://hub.example.org:9415. Without a path: /api/v1/write. http:// "
        "only on loopback, for a tunnel.",
    )


class Agents(Section):
    """Where the hub takes what agents send."""

    listen: ListenAddress = default(
        "127.0.0.1", "The listen address for agents. Beyond loopback only with cert_file and key_file."
    )
    cert_file: TrustFile | None = default(
        None, "A file with the hub's certificate (PEM) and any intermediate certificates."
    )
    key_file: KeyFile | None = default(None, "A file with the private key of that certificate (PEM).")
    page: Link | None = default(
        None,
        "The base URL of agents' light pages, to which the hub's leads, such as http://{node}:9410. null: "
        "it leads to Grafana.",
    )

    @model_validator(mode="after")
    def _certified(self) -> Agents:
        require_both(self, ("cert_file", "key_file"))
        if self.cert_file is None and not is_loopback(self.listen):
            raise Fault(
                "would take passwords over the network in clear text",
                expected="127.0.0.1, or a certificate",
                fix="set cert_file and key_file; docs/cluster.md has the command that makes them",
                at=("listen",),
                value=self.listen,
            )
        return self


def faults(config: Config) -> Iterator[Fault]:
    """Yield a fault for each key that does not fit the role."""
    role = config.role
    hub = config.hub
    if role == AGENT and not (hub.url and (hub.password_file or hub.token_file)):
        lacks = "no url" if hub.url is None else "neither password_file nor token_file"
        yield Fault(
            f"needs a hub to send to, and hub has {lacks}",
            expected="hub with url, and password_file or token_file",
            fix='write hub: {url: "https://hub.example.org:9415", password_file: secrets/hub-password}',
            at=("role",),
            value=role,
        )
    if role == AGENT and config.node is None:
        try:
            own_name()
        except Fault as fault:
            yield fault.below(("node",))
    fitting = (("hub", AGENT, Hub()), ("node", AGENT, None), ("agents", HUB, Agents()))
    for key, owner, usual in fitting:
        if role != owner and getattr(config, key) != usual:
            yield Fault(
                f"has no effect with role: {role}",
                expected=f"role: {owner}",
                fix=f"write role: {owner}, or delete {key}",
                at=(key,),
                value=NOTHING,
            )
    if role != AGENT:
        return
    for at, found, says in (
        (("receivers",), config.receivers, "have no effect on an agent, which sends no notifications"),
        (
            ("actions", "policies"),
            config.actions.policies,
            "have no effect on an agent, which evaluates no alerts",
        ),
        (("deadman",), config.deadman.enabled, "has no effect on an agent, which evaluates no alerts"),
        (("rules",), config.rules == "none", "has no effect on an agent, which evaluates none"),
    ):
        if found:
            yield Fault(
                says,
                expected="none with role: agent",
                fix="move them to the config.yaml of the hub",
                at=at,
                value=NOTHING,
            )
    if NODE in config.external_labels:
        yield Fault(
            "is the label that the key node sets",
            expected="another label",
            fix="delete it, and set node",
            at=("external_labels", NODE),
            value=config.external_labels[NODE],
        )
