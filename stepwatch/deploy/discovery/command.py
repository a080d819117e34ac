"""From running containers to a file of targets: what `generate.py --discover docker` does, in order.

Nothing else is rendered: this is called by a timer, which must not put a half-edited config.yaml in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import readable
from stepwatch.config.deployment import DISCOVERED, TARGETS
from stepwatch.deploy.discovery import daemon
from stepwatch.deploy.discovery.container import Container
from stepwatch.deploy.discovery.reach import FromContainer, FromMachine, Reach
from stepwatch.deploy.discovery.targets import Found, found
from stepwatch.deploy.native.state import State
from stepwatch.render import output
from stepwatch.schema.errors import Refused
from stepwatch.system import processes
from stepwatch.system.environment import CHECKOUT

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
    answer = daemon.ask()
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


def _of_processes(place: State, answer: daemon.Answer) -> Site | None:
    if not processes.marked(place.mark):
        return None
    return Site(place.discovered, FromMachine(answer.networks))


def _of_containers(answer: daemon.Answer) -> Site | None:
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
    readable.require(folder if folder.is_dir() else targets, targets)
    return folder
