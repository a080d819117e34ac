"""What Prometheus is to read, and who tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class Target:
    """A server with a page of metrics, as one source tells of it.

    ``address`` is as ``Allowed.checked`` gives it. ``labels`` hold ``job`` and ``role``, and ``run`` where
    it is known. ``over``: the source knows that its time is over, so that it leaves as soon as it takes
    no connection.
    """

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    path: str = METRICS_PATH
    source: str = ""
    over: bool = False


class Source(Protocol):
    """Tells of targets; ``name`` is its label in metrics.

    ``read`` is when what it tells was last had in good order, in seconds since the epoch; ``None`` if
    there never was anything.
    """

    name: str
    read: float | None

    def targets(self) -> Iterable[Target]:
        """All targets that it knows of now, from a thread of discovery's own. Raises nothing."""
