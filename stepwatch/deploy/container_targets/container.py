"""A running container, as far as its labels and its addresses go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError

from stepwatch.config import reference
from stepwatch.schema.errors import Fault, Problem, Refused
from stepwatch.schema.names import JobName
from stepwatch.schema.path_types import MetricsPath
from stepwatch.schema.scalars import Role
from stepwatch.schema.section import Section

PREFIX = "stepwatch."
ASKS = f"{PREFIX}scrape"

_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


def _port(value: Any) -> int:
    if _PORT.fullmatch(value) and 0 < int(value) < 65536:
        return int(value)
    raise Fault(
        "is not a port",
        expected="a port of the container, from 1 to 65535",
        fix="start it with the number of the port alone in this label",
    )


class Wish(Section):
    """The labels of one container: the port inside it, and what becomes of its target."""

    scrape: Annotated[int, PlainValidator(_port)]
    path: MetricsPath = "/metrics"
    job: JobName = "docker"
    role: Role = "other"


def wish(labels: Mapping[str, str]) -> Wish:
    """Return what labels ask for; those that are not ours do not matter.

    Raises:
        Refused: One of ours is wrong; all that are wrong are named, a line each.
    """
    ours = {name.removeprefix(PREFIX): text for name, text in labels.items() if name.startswith(PREFIX)}
    try:
        return Wish.model_validate(ours)
    except ValidationError as error:
        raise Refused("\n".join(_lines(error))) from error


def _lines(error: ValidationError) -> Iterator[str]:
    for fault in reference.faults(error, Wish):
        yield f"label {PREFIX}{Problem(None, fault)}"


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
    return [_container(each, _networked(each, by_id)) for each in by_id.values()]


def _networked(container: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The container whose network this one uses: its own, unless it was started in another one's."""
    kind, _, other = _mode(container).partition(":")
    return by_id.get(other, {}) if kind == "container" else container


def _container(item: Mapping[str, Any], network: Mapping[str, Any]) -> Container:
    return Container(
        name=_name(item),
        state=item["State"],
        labels=item["Labels"] or {},
        on_host=_mode(network) == "host",
        addresses=dict(_addresses(network)),
        ports=tuple(sorted(_ports(network), key=_is_six)),
        mounts={mount["Destination"]: mount["Source"] for mount in item.get("Mounts") or []},
    )


def _name(item: Mapping[str, Any]) -> str:
    # Links give a container more names, below those of others: /web/database.
    names: list[str] = [name.removeprefix("/") for name in item["Names"] or []]
    return next((name for name in names if "/" not in name), item["Id"][:12])


def _mode(item: Mapping[str, Any]) -> str:
    mode: str = item.get("HostConfig", {}).get("NetworkMode", "")
    return mode


def _addresses(network: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    networks = network.get("NetworkSettings", {}).get("Networks") or {}
    for name, end in sorted(networks.items()):
        if end.get("IPAddress"):
            yield name, end["IPAddress"]
        elif end.get("GlobalIPv6Address"):
            yield name, f"[{end['GlobalIPv6Address']}]"


def _ports(network: Mapping[str, Any]) -> Iterable[Published]:
    for port in network.get("Ports") or []:
        if port.get("PublicPort") and port["Type"] == "tcp":
            host = port.get("IP") or "0.0.0.0"  # noqa: S104  what no address means
            yield Published(port["PrivatePort"], host, port["PublicPort"])


def _is_six(port: Published) -> bool:
    return ":" in port.host
