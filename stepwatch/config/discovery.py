"""How servers of runs are found that come and go on random ports: the `discovery` section."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from exporter.runs.rollouts.address import USUAL
from stepwatch.config.errors import Fault
from stepwatch.config.places import FolderOrGlob
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import PositiveSpan
from stepwatch.config.secret import SecretFile
from stepwatch.config.section import Section


def _network(value: Any) -> str:
    try:
        return str(ip_network(value if isinstance(value, str) else ""))
    except ValueError as error:
        raise Fault(
            "is no network",
            expected="an IP address, or one with the number of bits that count, such as 10.0.0.0/8",
            cure="write it so; bits beyond that number are 0",
        ) from error


Network = Annotated[str, PlainValidator(_network)]


class Discovery(Section):
    """Where word of servers is found, and which of them Prometheus may read."""

    allow: tuple[Network, ...] = USUAL
    ray: FolderOrGlob | None = Field(default=Path("/tmp/ray"))  # noqa: S108  Ray's own default
    files: tuple[FolderOrGlob, ...] = ()
    forget_after: PositiveSpan = Duration.parse("10m")
    token_file: SecretFile | None = None
