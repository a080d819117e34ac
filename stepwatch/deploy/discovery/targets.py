"""Targets of Prometheus (file_sd) made of containers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from stepwatch.deploy.discovery.container import Container
from stepwatch.deploy.discovery.reach import Reach
from stepwatch.deploy.discovery.wish import ASKS, Wish, wish
from stepwatch.schema.errors import Refused


@dataclass(frozen=True)
class Target:
    """A container that is scraped, at an address that its Prometheus reaches."""

    container: str
    address: str
    wish: Wish

    @property
    def group(self) -> dict[str, object]:
        """Itself as an entry of a target file."""
        labels = {
            "job": self.wish.job,
            # Its address changes with each start, and with the address everything that was known of it.
            "instance": f"{self.container}:{self.wish.scrape}",
            "role": self.wish.role,
            "container": self.container,
            "__metrics_path__": self.wish.path,
        }
        return {"targets": [self.address], "labels": labels}

    def __str__(self) -> str:
        return f"{self.container}: {self.wish.job}, at {self.address}{self.wish.path}, role {self.wish.role}"


@dataclass(frozen=True)
class Found:
    """The targets, and of each container that cannot be one, why: a line for each fault."""

    targets: tuple[Target, ...]
    faults: tuple[str, ...]

    @property
    def file(self) -> bytes:
        """The targets as a file of file_sd; with none of them it is a list still."""
        return (json.dumps([target.group for target in self.targets], indent=2) + "\n").encode()


def found(containers: Iterable[Container], reach: Reach) -> Found:
    """Make a target of each container that asks for it, in the order of their names."""
    targets, faults = [], []
    for container in sorted(containers, key=lambda each: each.name):
        if ASKS in container.labels:
            try:
                targets.append(_target(container, reach))
            except Refused as refusal:
                faults += [f"Container {container.name}: {line}" for line in str(refusal).splitlines()]
    return Found(tuple(targets), tuple(faults))


def _target(container: Container, reach: Reach) -> Target:
    asked = wish(container.labels)
    return Target(container.name, reach.address(container, asked.scrape), asked)
