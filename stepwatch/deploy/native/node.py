"""node_exporter, if this machine has it: memory, disks and load of the machine itself."""

from __future__ import annotations

import shutil
from pathlib import Path

from stepwatch.config import Config
from stepwatch.deploy.native.state import State
from stepwatch.system import http_client, ports, processes

_NAMES = ("node_exporter", "prometheus-node-exporter")


def find() -> Path | None:
    """The program from PATH, ``None`` if there is none; it is never downloaded."""
    return next((Path(path) for path in map(shutil.which, _NAMES) if path), None)


def serves_already(config: Config, place: State) -> bool:
    """Whether one that is not ours, as the distribution's service, answers on the port for it."""
    if not ports.taken(config.listen, config.ports.node):
        return False
    owner = ports.owner(config.ports.node)
    if owner and processes.belongs(owner.pid, place.mark):
        return False
    return "\nnode_exporter_build_info{" in (
        http_client.read(f"http://{config.address('node')}/metrics") or ""
    )
