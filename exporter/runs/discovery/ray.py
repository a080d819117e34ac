"""Ray's own list of its targets: nodes, autoscaler and dashboard.

The dashboard of the head node writes it every five seconds, by renaming; since some release the path in
Ray's folder is a link into the folder of the session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from exporter.runs.discovery.address import Allowlist
from exporter.runs.discovery.document import DamagedError, Document, Root
from exporter.runs.discovery.target_registry import RAY, Target

NAME = "ray_file"
USUAL = "prom_metrics_service_discovery.json"
"""Its name in Ray's folder."""

STALE_SECONDS = 60.0
"""A list that was not written for that long is that of a cluster which has ended."""

_LABELS = {"job": RAY, "role": RAY}
_EXPECTED = 'is not a list of targets, such as [{"targets": ["10.0.0.7:8080"]}]'


class RayFile:
    """The list in Ray's folder."""

    name = NAME

    def __init__(self, path: Path, gate: Allowlist, root: Root) -> None:
        self._document = Document(path, NAME, addresses, gate, root)

    @property
    def read(self) -> float | None:
        """When it was last in good order."""
        return self._document.read

    def targets(self) -> Iterator[Target]:
        self._document.look()
        over = not self._document.there or time.time() - self._document.written > STALE_SECONDS
        for address in self._document.addresses:
            yield Target(address, _LABELS, source=NAME, over=over)


def addresses(content: bytes) -> list[str]:
    """The targets of all groups.

    Raises:
        DamagedError: it is not a list of targets, or only a part of one.
    """
    if not content.strip():
        raise DamagedError("is empty")
    try:
        groups = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DamagedError(f"is not valid JSON ({error})") from error
    try:
        lists = [group["targets"] for group in groups]
    except (TypeError, KeyError) as error:
        raise DamagedError(_EXPECTED) from error
    if not all(isinstance(targets, list) for targets in lists):
        raise DamagedError(_EXPECTED)
    found = [target for targets in lists for target in targets]
    if not all(isinstance(target, str) for target in found):
        raise DamagedError("lists a target that is not a string")
    return found
