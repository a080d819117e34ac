"""One process of the stack, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stepwatch.native import state
from stepwatch.native.settings import Settings


@dataclass(frozen=True)
class Part:
    """A process to keep running.

    ``name`` is also its key below ``ports`` in config.yaml. It listens on a port of ``listen`` and
    is reached at ``address`` (host:port). ``ready`` is the path of the page that answers once the
    part works, ``url`` the page for people and ``shows`` what they see there.
    """

    name: str
    command: tuple[str, ...]
    listen: str
    port: int
    address: str
    ready: str
    url: str
    shows: str
    environment: dict[str, str] = field(default_factory=dict)
    settings: Settings | None = None

    def page(self, path: str) -> str:
        """The address of one of its pages on this machine."""
        return f"http://{self.address}{path}"

    @property
    def metrics(self) -> str:
        """The address of its own metrics."""
        return self.page("/metrics")


def save(parts: Iterable[Part], path: Path) -> None:
    """Write down which parts run."""
    state.write(path, json.dumps([asdict(part) for part in parts], indent=1))


def load(path: Path) -> list[Part]:
    """Read them back; none when nothing was brought up."""
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [_part(**values) for values in parts]


def _part(*, command: list[str], settings: dict[str, Any] | None, **others: Any) -> Part:
    kept = settings and Settings(**{**settings, "files": tuple(settings["files"])})
    return Part(command=tuple(command), settings=kept or None, **others)
