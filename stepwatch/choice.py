"""Containers or plain processes: which of the two a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from stepwatch.compose import engine
from stepwatch.compose.commands import Containers
from stepwatch.compose.engine import EngineError, NoEngineError
from stepwatch.config import Config
from stepwatch.deployment import Deployment
from stepwatch.native.commands import Processes
from stepwatch.native.state import State
from stepwatch.tables import Say
from stepwatch.testalert.journal import Journal


class Stack(Protocol):
    """What both kinds of stack can do."""

    def up(self, runs: Path | None, *, demo: bool) -> int:
        """Bring it up, or up to date."""

    def down(self) -> int:
        """Take it down."""

    def status(self) -> int:
        """Show how it is."""

    def demo_reset(self) -> int:
        """Have the demo start over."""

    def journal(self, part: str) -> Journal:
        """What a part says from now on."""

    def log(self, part: str) -> str:
        """Where people read that."""

    def deployment(self, config: Config) -> Deployment:
        """What files are rendered for."""

    @property
    def rendered(self) -> Path:
        """The folder that holds ``<service>/generated``."""


def to_start(config: Path, place: State, say: Say, *, native: bool) -> Stack:
    """The stack that `up` is about: what runs already, else containers if Docker answers."""
    processes = Processes(config, place, say)
    if native or processes.exists:
        return processes
    try:
        engine.require()
    except NoEngineError as reason:
        say(f"Plain processes, not containers: {reason}.")
        return processes
    return Containers(config, place, say)


def running(config: Path, place: State, say: Say) -> Stack:
    """The stack that all other commands are about."""
    processes = Processes(config, place, say)
    return (
        processes
        if processes.exists or not _containers(config, place, say)
        else Containers(config, place, say)
    )


def _containers(config: Path, place: State, say: Say) -> bool:
    try:
        engine.require()
        return Containers(config, place, say).exists
    except (NoEngineError, EngineError):
        return False
