"""Docker and its Compose plugin on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from exporter.installation import INSTALLED
from stepwatch.config.deployment import CONTAINER_PORTS
from stepwatch.schema.errors import Refused

LEAST_COMPOSE = (2, 20)
"""The first that knows `start_interval`."""

_ANSWER_SECONDS = 15


class EngineError(Refused):
    """Raised when Compose cannot do what was asked; holds its words."""


class NoEngineError(Exception):
    """Raised when there is no engine to use; its text says what is missing."""


@dataclass(frozen=True)
class Service:
    """What Compose knows of a service's container.

    ``published`` is where this machine reaches ports of the container, as host:port; ``known`` is what
    Docker says about the container besides, empty once it is gone.
    """

    name: str
    container: str
    state: str
    health: str
    exit_code: int
    summary: str
    published: Mapping[int, str]
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether it does its work once, and did."""
        return self.state == "exited" and self.exit_code == 0

    @property
    def standing(self) -> str:
        """``up``, or the word for what is wrong with it."""
        if self.state != "running":
            return self.state
        if self.health in ("starting", "unhealthy"):
            return self.health
        return "up" if self._probed else "starting"

    @property
    def restarts(self) -> int:
        """How often it ended and Docker started it again."""
        return int(self.known.get("RestartCount", 0))

    @property
    def started(self) -> datetime | None:
        """When its present process began."""
        started = self.known.get("State", {}).get("StartedAt")
        return _time(started) if started else None

    @property
    def _probed(self) -> bool:
        """Whether its health is that of the present process, or there is no health check.

        For a moment after each start, that of a container which dies again and again included, Docker
        still reports the health from before, or Compose reports none at all.
        """
        if not self.known.get("Config", {}).get("Healthcheck"):
            return True
        probes = (self.known.get("State", {}).get("Health") or {}).get("Log") or []
        return bool(self.started and probes and _time(probes[-1]["Start"]) > self.started)


@dataclass(frozen=True)
class Engine:
    """Commands to Compose about the project in one checkout.

    ``variables`` are those that compose.yaml asks for, ``files`` and ``profiles`` what of it counts.
    """

    checkout: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ("compose.yaml",)
    profiles: tuple[str, ...] = ()

    def show(self, *words: str) -> int:
        """Run a command that talks to the user; return its exit status."""
        return subprocess.run(self._command(words), env=self._environment(), check=False).returncode

    def tell(self, *words: str) -> str:
        """Run a command; return what it prints.

        Raises:
            EngineError: it failed.
        """
        done = subprocess.run(
            self._command(words), env=self._environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise EngineError(f"docker compose {words[0]} failed. It says: {done.stderr.strip()}")
        return done.stdout

    def services(self) -> list[Service]:
        """The containers of the stack, ended ones included."""
        listed = self.tell("ps", "--all", "--format=json").strip()
        # One object a line; versions before 2.21 print one list.
        found = json.loads(listed) if listed.startswith("[") else list(map(json.loads, listed.splitlines()))
        known = {each["Id"]: each for each in _inspect(each["ID"] for each in found)}
        return [_service(each, known) for each in found]

    def _command(self, words: tuple[str, ...]) -> list[str]:
        files = [f"--file={self.checkout / name}" for name in self.files]
        profiles = [f"--profile={name}" for name in self.profiles]
        return ["docker", "compose", *files, *profiles, *words]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables}


def _service(row: dict[str, Any], known: Mapping[str, dict[str, Any]]) -> Service:
    return Service(
        name=row["Service"],
        container=row["ID"],
        state=row["State"],
        health=row["Health"],
        exit_code=row["ExitCode"],
        summary=row["Status"],
        published={
            each["TargetPort"]: address for each in row.get("Publishers") or [] if (address := _address(each))
        },
        known=next((each for name, each in known.items() if name.startswith(row["ID"])), {}),
    )


def _time(text: str) -> datetime:
    """A time that Docker tells, to the second; it has nanoseconds, which older Pythons cannot read."""
    return datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))


def addresses(services: Iterable[Service]) -> dict[str, str]:
    """Where this machine reaches each part, by its name: through the door if it is behind that."""
    published = {port: address for each in services for port, address in each.published.items()}
    return {part: published[port] for part, port in CONTAINER_PORTS.items() if port in published}


def _address(publisher: dict[str, Any]) -> str:
    """host:port of a published port as this machine reaches it."""
    host, port = publisher["URL"], publisher["PublishedPort"]
    if not port:
        return ""
    here = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  a name for it
    return f"[{here}]:{port}" if ":" in here else f"{here}:{port}"


def require() -> None:
    """Check that a Docker daemon answers, and that its Compose is not too old.

    Raises:
        NoEngineError: what is missing.
    """
    if INSTALLED:
        raise NoEngineError("those are built in a checkout of the repository")
    if not shutil.which("docker"):
        raise NoEngineError("docker is not on PATH")
    if _output("docker", "version", "--format={{.Server.Version}}") is None:
        raise NoEngineError("no Docker daemon answers")
    compose = _output("docker", "compose", "version", "--short")
    if compose is None:
        raise NoEngineError("docker has no Compose plugin (docker-compose v1 will not do)")
    number = re.search(r"(\d+)\.(\d+)", compose)
    if not number or (int(number[1]), int(number[2])) < LEAST_COMPOSE:
        raise NoEngineError(
            f"Docker Compose is {compose.strip()}; needed: {'.'.join(map(str, LEAST_COMPOSE))}"
        )


def info() -> dict[str, Any]:
    """What Docker knows of itself; empty if it does not answer."""
    known: dict[str, Any] = json.loads(_output("docker", "info", "--format={{json .}}") or "{}")
    return known


def _inspect(containers: Iterable[str]) -> list[dict[str, Any]]:
    """What Docker knows of containers; those that are gone are left out."""
    listed = _output("docker", "inspect", *containers, failing=True)
    found: list[dict[str, Any]] = json.loads(listed or "[]")
    return found


def _output(*command: str, failing: bool = False) -> str | None:
    """What a command prints; None if it cannot run or, unless ``failing`` is allowed, fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if failing or done.returncode == 0 else None
