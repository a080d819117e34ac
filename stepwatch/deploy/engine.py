"""Docker and its Compose plugin on this machine, and how they give containers its NVIDIA GPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
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

CDI_KIND = "nvidia.com/gpu"
"""What NVIDIA calls its devices in CDI."""

_NVIDIA = Path("/dev/nvidiactl")


class EngineError(Refused):
    """Raised when Compose fails; the text is its output."""


class NoEngineError(Exception):
    """Raised when no engine is usable; the text says what is missing."""


@dataclass(frozen=True)
class Service:
    """The state of a service's container in Compose; ``published`` are its ports, as host:port, from here."""

    name: str
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
    def status(self) -> str:
        """``up``, or the word for what is wrong with it."""
        if self.state != "running":
            return self.state
        if self.health in ("starting", "unhealthy"):
            return self.health
        if not self.known.get("Config", {}).get("Healthcheck"):
            return "up"
        # For a moment after each start, that of a container which dies again and again included, Docker
        # still reports the health from before, or Compose reports none at all.
        probes = (self.known.get("State", {}).get("Health") or {}).get("Log") or []
        probed = self.started and probes and _time(probes[-1]["Start"]) > self.started
        return "up" if probed else "starting"

    @property
    def restarts(self) -> int:
        """How often Docker restarted it."""
        return int(self.known.get("RestartCount", 0))

    @property
    def started(self) -> datetime | None:
        """When its current process started."""
        started = self.known.get("State", {}).get("StartedAt")
        return _time(started) if started else None


@dataclass(frozen=True)
class Engine:
    """Commands to Compose; ``variables`` are those of compose.yaml, ``files`` and ``profiles`` its parts."""

    checkout: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ("compose.yaml",)
    profiles: tuple[str, ...] = ()

    def show(self, *words: str) -> int:
        """Run a command that talks to the user; return its exit status."""
        return self._compose(words).returncode

    def run(self, *words: str) -> str:
        """Run a command; return what it prints, or raise an EngineError with it."""
        done = self._compose(words, capture_output=True)
        if done.returncode:
            raise EngineError(f"docker compose {words[0]} failed. It says: {done.stderr.strip()}")
        return done.stdout

    def services(self) -> list[Service]:
        """The containers of the stack, ended ones included."""
        listed = self.run("ps", "--all", "--format=json").strip()
        # One object a line; versions before 2.21 print one list.
        found = json.loads(listed) if listed.startswith("[") else list(map(json.loads, listed.splitlines()))
        # Those that are gone by now are left out, and the command fails.
        inspected = _output("docker", "inspect", *(each["ID"] for each in found), failing=True)
        known = {each["Id"]: each for each in json.loads(inspected or "[]")}
        return [
            Service(
                name=each["Service"],
                state=each["State"],
                health=each["Health"],
                exit_code=each["ExitCode"],
                summary=each["Status"],
                published=dict(_published(each.get("Publishers") or [])),
                known=next((known[name] for name in known if name.startswith(each["ID"])), {}),
            )
            for each in found
        ]

    def log(self, service: str, lines: int) -> list[str]:
        """The last lines that a service logged."""
        return self.run("logs", "--no-log-prefix", f"--tail={lines}", service).splitlines()

    def _compose(self, words: tuple[str, ...], **options: Any) -> subprocess.CompletedProcess[str]:
        files = [f"--file={self.checkout / name}" for name in self.files]
        profiles = [f"--profile={name}" for name in self.profiles]
        command = ["docker", "compose", *files, *profiles, *words]
        environment = {**os.environ, **self.variables}
        return subprocess.run(command, env=environment, text=True, check=False, **options)


def _time(text: str) -> datetime:
    """A time from Docker, to the second; it has nanoseconds, which older Pythons cannot read."""
    return datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))


def addresses(services: Iterable[Service]) -> dict[str, str]:
    """Where this machine reaches each part, by its name."""
    published = {port: address for each in services for port, address in each.published.items()}
    return {part: published[port] for part, port in CONTAINER_PORTS.items() if port in published}


def _published(publishers: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Ports of a container, and host:port at which this machine reaches each."""
    for each in publishers:
        host, port = each["URL"], each["PublishedPort"]
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  a name for it
        if port:
            yield each["TargetPort"], f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def require() -> None:
    """Raise a NoEngineError if no Docker daemon answers, or its Compose is too old."""
    if INSTALLED:
        raise NoEngineError("those are built in a checkout of the repository")
    if not shutil.which("docker"):
        raise NoEngineError("docker is not on PATH")
    if _output("docker", "version", "--format={{.Server.Version}}") is None:
        raise NoEngineError("no Docker daemon answers")
    compose = _output("docker", "compose", "version", "--short")
    if compose is None:
        raise NoEngineError("docker has no Compose plugin (docker-compose v1 does not work)")
    number = re.search(r"(\d+)\.(\d+)", compose)
    if not number or (int(number[1]), int(number[2])) < LEAST_COMPOSE:
        needed = ".".join(map(str, LEAST_COMPOSE))
        raise NoEngineError(f"Docker Compose is {compose.strip()}; needed: {needed}")


def gpu_files(*, processes: bool, device: Path = _NVIDIA) -> tuple[str, ...]:
    """The files beside compose.yaml for a GPU; NVIDIA's runtime first, as CDI's may be of an older driver."""
    known = json.loads((device.exists() and _output("docker", "info", "--format={{json .}}")) or "{}")
    if "nvidia" in (known.get("Runtimes") or {}):
        access = "compose.gpu.yaml"
    elif any(CDI_KIND in name for name in _cdi(known)):
        access = "compose.gpu.cdi.yaml"
    else:
        return ()
    return (access, "compose.processes.yaml") if processes else (access,)


def _cdi(info: Mapping[str, Any]) -> Iterator[str]:
    """What speaks of CDI devices: since Docker 28.3 their names, before that the files that define them."""
    if info.get("DiscoveredDevices"):
        yield from (device["Name"] for device in info["DiscoveredDevices"])
        return
    for folder in info.get("CDISpecDirs") or []:
        for file in sorted(Path(folder).glob("*.[jy]*")):
            with suppress(OSError):  # what we may not read, Docker may: without it we only do not know
                yield file.read_text(encoding="utf-8", errors="replace")


def _output(*command: str, failing: bool = False) -> str | None:
    """What a command prints; None if it cannot run or, unless ``failing`` is allowed, fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if failing or done.returncode == 0 else None
