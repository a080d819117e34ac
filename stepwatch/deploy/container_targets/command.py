"""From running containers to a file of targets: what `generate.py --discover docker` does, in order.

Nothing else is rendered: a timer calls this and must not apply a half-edited config.yaml.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import deployment
from stepwatch.config.deployment import DISCOVERED, TARGETS
from stepwatch.deploy.container_targets.targets import (
    Container,
    Found,
    FromContainer,
    FromMachine,
    Reach,
    containers,
    found,
)
from stepwatch.deploy.native.state import State
from stepwatch.render import output
from stepwatch.schema.errors import Refused
from stepwatch.system import processes
from stepwatch.system.environment import CHECKOUT

_ANSWER_SECONDS = 15
_UNIX = "http+docker://localhost"
"""What the SDK calls any socket of this machine."""

_LOGIN = re.compile(r"//[^/@\s]*@")
_NOT_THERE = "start Docker, or name its socket in DOCKER_HOST"
_FIXES: dict[type[BaseException], str] = {
    PermissionError: "run this as root, or as a user of the group that the socket belongs to (often docker)",
    FileNotFoundError: _NOT_THERE,
    ConnectionRefusedError: _NOT_THERE,
}
FILE = "docker.json"


@dataclass(frozen=True)
class Answer:
    """What runs, and in which networks the addresses of containers lead there from this machine."""

    containers: tuple[Container, ...]
    networks: frozenset[str]


def discover(place: State) -> tuple[Path, Found]:
    """Write the targets that containers declare; return the file and its contents.

    Args:
        place: Where a native stack keeps what it writes.

    Raises:
        Refused: No daemon answers, no stack runs, or the file cannot be written; nothing was changed.
    """
    answer = ask()
    folder, prometheus = _prometheus(place, answer)
    result = found(answer.containers, prometheus)
    with output.locked(folder):
        output.replace_file(folder / FILE, result.file)
    return folder / FILE, result


def _prometheus(place: State, answer: Answer) -> tuple[Path, Reach]:
    """The folder in which the running Prometheus looks for discovered targets, and what it reaches."""
    if processes.marked(place.mark):
        return place.discovered, FromMachine(answer.networks)
    for container in answer.containers:
        checkout = container.labels.get("com.docker.compose.project.working_dir", "")
        service = container.labels.get("com.docker.compose.service")
        # Its networks and its mount are asked for: variables and override files of Compose may change both.
        source = container.mounts.get(TARGETS)
        if service == "prometheus" and source and Path(checkout).resolve() == CHECKOUT:
            targets = Path(source)
            folder = targets / DISCOVERED
            deployment.require(folder if folder.is_dir() else targets, targets)
            return folder, FromContainer(container.addresses.keys())
    raise Refused(
        f"No Prometheus of {CHECKOUT} is running, so its reachable targets are unknown. Expected: a running "
        "stack. Fix: run `make up`, then this command again. Nothing was changed."
    )


def ask() -> Answer:
    """Query the running containers.

    Raises:
        Refused: No daemon of this machine answers.
    """
    try:
        import docker  # noqa: PLC0415  it takes longer to import than all else of generate.py
    except ImportError as error:
        raise Refused(
            "The Docker SDK for Python (package docker) is not installed. "
            "Fix: `make discover`, which sets up .venv. Nothing was changed."
        ) from error
    try:
        client = docker.from_env(timeout=_ANSWER_SECONDS)
    except Exception as error:
        # Over variables and a ~/.docker/config.json that are odd the SDK fails in any way.
        raise _no_answer(error) from error
    try:
        with closing(client):
            if client.api.base_url != _UNIX:
                raise Refused(
                    f"{_host()} is not a socket of this machine; containers of another machine cannot be "
                    "reached from here. Expected: unix:///path/to/docker.sock. "
                    "Fix: run this where that daemon is. Nothing was changed."
                )
            info = client.api.info()
            rootless = "name=rootless" in (info.get("SecurityOptions") or ())
            bridges: list[str] = []
            # A Docker in a machine or a namespace of its own has no bridge on this machine.
            if not rootless and info["OperatingSystem"] != "Docker Desktop":
                bridges = [each["Name"] for each in client.api.networks() if each["Driver"] == "bridge"]
            return Answer(tuple(containers(client.api.containers())), frozenset(bridges))
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise _no_answer(error) from error


def _no_answer(error: Exception) -> Refused:
    system: BaseException | None = error
    while system and type(system) not in _FIXES:
        system = system.__cause__ or system.__context__
    why = getattr(system, "strerror", None) or _LOGIN.sub("//", str(error)).partition("\n")[0].rstrip(".")
    fix = _FIXES[type(system)] if system else "see whether `docker version` answers"
    return Refused(
        f"No Docker daemon answers at {_host()}: {why}. Expected: a Docker Engine that this user may ask. "
        f"Fix: {fix}. Nothing was changed."
    )


def _host() -> str:
    return _LOGIN.sub("//", os.environ.get("DOCKER_HOST") or "its usual socket")
