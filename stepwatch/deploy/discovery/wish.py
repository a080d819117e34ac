"""What a container asks for by its labels: `stepwatch.scrape`, `.path`, `.job` and `.role`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError

from stepwatch.config import explain
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
        "is no port",
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
    for fault in explain.faults(error, Wish):
        yield f"label {PREFIX}{Problem(None, fault)}"
