"""From running containers to a file of targets: what `generate.py --discover docker` does, in order.

Nothing else is rendered: this is called by a timer, which must not put a half-edited config.yaml in force.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwatch.config import deployment
from stepwatch.config.deployment import DISCOVERED, TARGETS
from stepwatch.deploy.container_targets.container import Container, containers
from stepwatch.deploy.container_targets.targets import Found, FromContainer, FromMachine, Reach, found
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


@dataclass(frozen=True)
class Answer:
    """What runs, and in which networks the addresses of containers lead there from this machine."""

    containers: tuple[Container, ...]
    networks: frozenset[str]


def ask() -> Answer:
    """Ask which containers run.

    Raises:
        Refused: No daemon answers, or none that is this machine's.
    """
    docker = _sdk()
    try:
        with closing(_client(docker)) as client:
            _require_local(client.api.base_url)
            return Answer(tuple(containers(client.api.containers())), frozenset(_direct(client.api)))
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise _no_answer(error) from error


def _client(docker: Any) -> Any:
    try:
        return docker.from_env(timeout=_ANSWER_SECONDS)
    except Exception as error:
        # Over variables and a ~/.docker/config.json that are odd the SDK stumbles in any way.
        raise _no_answer(error) from error


def _sdk() -> Any:
    try:
        import docker  # noqa: PLC0415  it takes longer to import than all else of generate.py
    except ImportError as error:
        raise Refused(
            "The Docker SDK for Python (package docker) is not installed. "
            "Fix: `make discover`, which sets up .venv. Nothing was changed."
        ) from error
    return docker


def _require_local(url: str) -> None:
    if url != _UNIX:
        raise Refused(
            f"{_host()} is no socket of this machine, and to another one's containers no address leads. "
            "Expected: unix:///path/to/docker.sock. Fix: run this where that daemon is. Nothing was changed."
        )


def _direct(api: Any) -> Iterator[str]:
    """The bridges of this machine; a Docker in a machine or a namespace of its own has none here."""
    info = api.info()
    rootless = "name=rootless" in (info.get("SecurityOptions") or ())
    if not rootless and info["OperatingSystem"] != "Docker Desktop":
        yield from (each["Name"] for each in api.networks() if each["Driver"] == "bridge")


def _no_answer(error: Exception) -> Refused:
    system = next((each for each in _causes(error) if type(each) in _FIXES), None)
    why = getattr(system, "strerror", None) or _LOGIN.sub("//", str(error)).partition("\n")[0].rstrip(".")
    fix = _FIXES[type(system)] if system else "see whether `docker version` answers"
    return Refused(
        f"No Docker daemon answers at {_host()}: {why}. Expected: a Docker Engine that this user may ask. "
        f"Fix: {fix}. Nothing was changed."
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _host() -> str:
    return _LOGIN.sub("//", os.environ.get("DOCKER_HOST") or "its usual socket")


FILE = "docker.json"

_SERVICE = "com.docker.compose.service"
_CHECKOUT = "com.docker.compose.project.working_dir"


@dataclass(frozen=True)
class Site:
    """A running Prometheus: the folder in which it looks for discovered targets, and what it reaches."""

    folder: Path
    reach: Reach


def discover(place: State) -> tuple[Path, Found]:
    """Write the targets that containers ask to be; return the file, and what it holds.

    Args:
        place: Where a native stack keeps what it writes.

    Raises:
        Refused: No daemon answers, no stack runs, or the file cannot be written; nothing was changed.
    """
    answer = ask()
    site = _of_processes(place, answer) or _of_containers(answer)
    if site is None:
        raise Refused(
            f"No Prometheus of {CHECKOUT} runs, and what it would reach depends on where it does. "
            "Expected: a stack that is up. Fix: `make up`, then this again. Nothing was changed."
        )
    result = found(answer.containers, site.reach)
    with output.locked(site.folder):
        output.replace_file(site.folder / FILE, result.file)
    return site.folder / FILE, result


def _of_processes(place: State, answer: Answer) -> Site | None:
    if not processes.marked(place.mark):
        return None
    return Site(place.discovered, FromMachine(answer.networks))


def _of_containers(answer: Answer) -> Site | None:
    """Its networks and its mount are asked for: variables and override files of Compose may change both."""
    for container in answer.containers:
        if _is_ours(container) and (source := container.mounts.get(TARGETS)):
            return Site(_readable(Path(source)), FromContainer(container.addresses.keys()))
    return None


def _is_ours(container: Container) -> bool:
    labels = container.labels
    ours = Path(labels.get(_CHECKOUT, "")).resolve() == CHECKOUT
    return ours and labels.get(_SERVICE) == "prometheus"


def _readable(targets: Path) -> Path:
    """The folder of discovered targets, or the refusal that it is closed to containers."""
    folder = targets / DISCOVERED
    deployment.require(folder if folder.is_dir() else targets, targets)
    return folder
