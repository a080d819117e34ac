"""What compose.yaml asks for, from config.yaml and from this machine."""

from __future__ import annotations

import os
from pathlib import Path

from stepwatch.config import Config, readable
from stepwatch.config.deployment import above_ray, mounted

PUBLISHED = ("exporter", "gpu", "watchdog", "prometheus", "alertmanager", "grafana")
"""The parts with a port of this machine."""

_LINKED = ("prometheus", "alertmanager", "grafana")


def of_config(config: Config) -> dict[str, str]:
    """What config.yaml says: where parts are published, where links lead, how much is kept."""
    ports = {f"STEPWATCH_{part.upper()}_PORT": str(getattr(config.ports, part)) for part in PUBLISHED}
    links = {f"STEPWATCH_{part.upper()}_LINK": config.link(part) for part in _LINKED}
    return {
        **ports,
        **links,
        "STEPWATCH_LISTEN": f"[{config.listen}]" if ":" in config.listen else config.listen,
        "STEPWATCH_RAY_ABOVE": str(above_ray(config)),
        "STEPWATCH_RETENTION_TIME": str(config.retention.time),
        "STEPWATCH_RETENTION_SIZE": str(config.retention.size),
    }


def of_machine(checkout: Path, runs: Path, rendered: Path) -> dict[str, str]:
    """What is mounted, and the groups that may read it.

    Args:
        checkout: The folder of compose.yaml.
        runs: The folder with the trainers' files.
        rendered: The folder that holds ``<service>/generated``.
    """
    secrets, targets = mounted(checkout)
    return {
        "STEPWATCH_PATH": str(runs),
        "STEPWATCH_PATH_GROUP": _group(runs),
        "STEPWATCH_RENDERED": str(rendered),
        "STEPWATCH_SECRETS": str(secrets),
        readable.GROUP_VARIABLE: os.environ.get(readable.GROUP_VARIABLE) or _group(secrets),
        "STEPWATCH_TARGETS": str(targets),
        "TZ": os.environ.get("TZ") or _time_zone(),
    }


def _group(folder: Path) -> str:
    # Containers get the group of what they read, so that files need not be open to everyone.
    return str(folder.stat().st_gid)


def _time_zone() -> str:
    # The name of the machine's zone is where its link leads: /usr/share/zoneinfo/Europe/Berlin.
    return str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
