"""Chooses between containers and plain processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment
from stepwatch.deploy import engine
from stepwatch.deploy.compose import Containers
from stepwatch.deploy.engine import EngineError, NoEngineError
from stepwatch.deploy.native import service
from stepwatch.deploy.native.commands import Processes
from stepwatch.deploy.native.state import State
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.terminal import Say


class Stack(Protocol):
    """The interface of both kinds of stack; numbers that it returns are exit codes."""

    def up(self, runs: Path | None, *, demo: bool) -> int:
        """Start or update it: 0 all is ready, 1 something is not."""

    def down(self) -> int:
        """Stop it."""

    def status(self) -> int:
        """Show its state: 0 all is well, 1 something is not, 3 it does not run."""

    def demo_reset(self) -> int:
        """Restart the demo from the beginning: 0, or 1 if it does not run or come up again."""

    def journal(self, part: str) -> Callable[[], str]:
        """Return a function that reads new log lines of a part."""

    def log(self, part: str) -> str:
        """Where people read the log of a part."""

    def deployment(self, config: Config) -> Deployment:
        """What files are rendered for."""

    def password(self, address: str) -> str | None:
        """The password of our services for a server (host:port) of the stack, ``None`` for others."""

    @property
    def rendered(self) -> Path:
        """The folder that holds ``<service>/generated``."""


def to_start(config: Path, place: State, say: Say, *, native: bool, as_service: bool = False) -> Stack:
    """The stack for `up`: the running one or the one with a unit, else containers if Docker answers."""
    processes = Processes(config, place, say, as_service)
    if native or processes.exists or service.installed(place):
        return processes
    try:
        engine.require()
    except NoEngineError as reason:
        say(f"Plain processes, not containers: {reason}.")
        return processes
    if as_service:
        raise Refused(
            "SERVICE=1: systemd units are for plain processes, but a Docker daemon answers here; Docker "
            "restarts containers after a reboot. Fix: omit SERVICE=1 and let Docker start at boot (`sudo "
            "systemctl enable docker`), or add NATIVE=1."
        )
    return Containers(config, place, say)


def running(config: Path, place: State, say: Say, *, as_service: bool = False) -> Stack:
    """The stack for all other commands."""
    processes = Processes(config, place, say, as_service)
    containers = Containers(config, place, say)
    if processes.exists or as_service:
        return processes
    with suppress(NoEngineError, EngineError):
        engine.require()
        if containers.exists:
            return containers
    return processes


def sign_in(config: Path, place: State, say: Say) -> None:
    """Have commands sign in to Prometheus and Alertmanager of the running stack, once they ask for it."""
    known: dict[str, str] = {}

    def password(address: str) -> str | None:
        if address not in known and (found := running(config, place, say).password(address)):
            known[address] = found
        return known.get(address)

    http_client.sign_in(password)
