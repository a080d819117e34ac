"""Damaged files in the volumes of containers: named, and moved aside."""

from __future__ import annotations

from stepwatch.deploy.compose.engine import Engine
from stepwatch.services import damage
from stepwatch.services.damage import Damage
from stepwatch.system.terminal import Say

FOLDERS = {"prometheus": "/prometheus", "alertmanager": "/alertmanager"}
"""Where compose.yaml mounts their volumes."""

_MOVE = 'mkdir -p "$1" && mv "$2" "$1/"'


def fix(project: Engine, service: str) -> str:
    """What the user reads where a damaged file keeps a container from starting; empty where none does."""
    found = _damaged(project, service)
    return found.fix(_place(service)) if found else ""


def repair(project: Engine, say: Say) -> bool:
    """Move aside what keeps containers from starting; return whether there was anything.

    Raises:
        EngineError: It cannot be moved.
    """
    failing = [each.name for each in project.services() if each.name in FOLDERS and each.standing != "up"]
    found = list(filter(None, (_damaged(project, name) for name in failing)))
    for each in found:
        folder, kept = FOLDERS[each.part], f"{FOLDERS[each.part]}/{damage.KEPT}/{damage.stamp()}"
        project.tell("stop", each.part)
        # In a container of the same image and user, since no one else can see the volume.
        container = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "sh", each.part)
        project.tell(*container, "-c", _MOVE, "sh", kept, f"{folder}/{each.name}")
        say(f"Moved {_place(each.part)}/{each.name} to {kept} there. Nothing was deleted.")
    return bool(found)


def _damaged(project: Engine, service: str) -> Damage | None:
    if service not in FOLDERS:
        return None
    log = project.tell("logs", "--no-log-prefix", f"--tail={damage.LOG_LINES}", service)
    return damage.find(service, log.splitlines())


def _place(service: str) -> str:
    return f"the volume {service}-data: {FOLDERS[service]}"
