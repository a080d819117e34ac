"""One process of the stack, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stepwatch.deploy.native import state
from stepwatch.services.settings import Settings
from stepwatch.system.http_client import Page


@dataclass(frozen=True)
class Web:
    """The pages of a part.

    It listens on ``ports`` of ``listen``, by their keys below ``ports`` in config.yaml, and others reach
    it at ``address`` (host:port). ``ready`` is the path of the page that answers once the part works,
    ``metrics`` that of its metrics, ``url`` the page for people. A part behind the door is itself at
    ``backend``, with the password in ``password_file``.
    """

    listen: str
    ports: dict[str, int]
    address: str
    ready: str
    url: str
    metrics: str = "/metrics"
    backend: str = ""
    password_file: str = ""

    def page(self, path: str) -> Page:
        """One of the part's own pages on this machine."""
        return Page(f"http://{self.backend or self.address}{path}", self.password_file)


@dataclass(frozen=True)
class Part:
    """A process to keep running.

    ``shows`` is what people see there, or what it does.
    """

    name: str
    command: tuple[str, ...]
    shows: str
    web: Web | None = None
    environment: dict[str, str] = field(default_factory=dict)
    settings: Settings | None = None

    @property
    def url(self) -> str:
        """The page for people, ``-`` if it has none."""
        return self.web.url if self.web else "-"

    @property
    def address(self) -> str:
        """host:port at which it is reached, empty if it has no pages."""
        return self.web.address if self.web else ""

    @property
    def ready(self) -> Page:
        """The page that answers once it works, without an address if it has none."""
        return self.web.page(self.web.ready) if self.web else Page("")

    @property
    def metrics(self) -> Page:
        """The page of its own metrics, without an address if it has none."""
        return self.web.page(self.web.metrics) if self.web else Page("")


def save(parts: Iterable[Part], path: Path) -> None:
    """Write down which parts run."""
    state.write(path, json.dumps([asdict(part) for part in parts], indent=1))


def load(path: Path) -> list[Part]:
    """Read them back; none when nothing was brought up.

    Raises:
        DamagedStateError: the file does not hold what ``save`` wrote.
    """
    try:
        return [_part(**values) for values in state.read(path, list) or []]
    except (TypeError, KeyError):
        raise state.damaged(path) from None


def _part(
    *, command: list[str], web: dict[str, Any] | None, settings: dict[str, Any] | None, **others: Any
) -> Part:
    kept = settings and Settings(**{**settings, "files": tuple(settings["files"])})
    return Part(command=tuple(command), web=Web(**web) if web else None, settings=kept or None, **others)
