"""What Prometheus is to read, and who reports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

METRICS_PATH = "/metrics"

ROLLOUT, RAY, TRAINER = "rollout", "ray", "trainer"
"""Roles: what a server is for. EngineGone reports a lost rollout server, RayNodeLost a part of Ray."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server with a page of metrics, as one source reports it.

    ``address`` is as ``Gate`` let it pass. ``labels`` hold ``job`` and ``role``, and ``run`` where it is
    known. ``over``: the source knows that its time is over, so that it leaves once it takes no connection.
    """

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    path: str = METRICS_PATH
    source: str = ""
    over: bool = False


class Source(Protocol):
    """Reports targets; ``name`` is its label in metrics."""

    name: str

    @property
    def read(self) -> float | None:
        """When it last had what it tells in good order, in seconds since the epoch; ``None``: never."""

    def targets(self) -> Iterable[Target]:
        """All targets that it knows of now, from a thread of discovery's own. Raises nothing."""
