"""What a test must know of how the stack runs."""

from __future__ import annotations

from typing import Protocol

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment
from stepwatch.testalert.journal import Journal


class Site(Protocol):
    """A running stack, of containers or of plain processes."""

    def deployment(self, config: Config) -> Deployment:
        """What its files are rendered for."""

    def journal(self, part: str) -> Journal:
        """What a part logs from now on."""

    def log(self, part: str) -> str:
        """Where people read that."""
