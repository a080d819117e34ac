"""The variables of compose.yaml, from config.yaml and this machine, and the `.env` that keeps them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from stepwatch.config import Config, deployment
from stepwatch.config.deployment import above_ray, mounted
from stepwatch.render import output

# The file .env beside compose.yaml, so that a bare `docker compose` means the same stack as `make up`.
#
# Our lines are between two marks; the user's other lines take precedence.
BEGIN = "# Stepwatch: from config.yaml and this machine, written again by `make up` and `generate`."
END = "# Stepwatch: end. Other lines are yours, and count more where `docker compose` is run by itself."
_BLOCK = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.DOTALL)


def update(file: Path, variables: Mapping[str, str]) -> None:
    """Set our variables; those of an earlier time that are not named now stay. Raises ``OutputError``."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    ours = _BLOCK.search(text)
    theirs = _BLOCK.sub("", text)
    before = dict(line.split("=", 1) for line in ours[0].splitlines()[1:-1]) if ours else {}
    lines = {**before, **{name: _quoted(value) for name, value in variables.items()}}
    for name in re.findall(r"^\s*(?:export\s+)?(\w+)\s*=", theirs, re.MULTILINE):
        lines.pop(name, None)
    block = "".join(f"{name}={value}\n" for name, value in sorted(lines.items()))
    fresh = f"{theirs}{BEGIN}\n{block}{END}\n"
    if fresh != text:
        output.replace_file(file, fresh.encode())


def _quoted(value: str) -> str:
    """As Compose reads it back unchanged."""
    if re.fullmatch(r"[\w./:@%+,-]*", value):
        return value
    if "'" not in value:
        return f"'{value}'"
    escaped = re.sub(r'([\\"$])', r"\\\1", value)
    return f'"{escaped}"'


PUBLISHED = ("exporter", "gpu", "prometheus", "alertmanager", "grafana")
"""The parts that always have a port of this machine, except on an agent."""
OF_AGENT = ("exporter", "gpu")


def published(config: Config) -> tuple[str, ...]:
    """Return the parts with a port of this machine: those of the configuration."""
    return OF_AGENT if config.is_agent else (*PUBLISHED, *config.optional_parts)


_LINKED = ("prometheus", "alertmanager", "grafana")


def of_config(config: Config) -> dict[str, str]:
    """Return the variables of config.yaml: published ports, links, logging, retention."""
    ports = {
        f"STEPWATCH_{part.upper()}_PORT": str(getattr(config.ports, part)) for part in (*PUBLISHED, "bridge")
    }
    links = {f"STEPWATCH_{part.upper()}_LINK": config.link(part) for part in _LINKED}
    return {
        **ports,
        **links,
        "STEPWATCH_LISTEN": _host(config.listen),
        "STEPWATCH_AGENTS_LISTEN": _host(config.agents.listen),
        "STEPWATCH_AGENTS_PORT": str(config.ports.agents),
        "STEPWATCH_RECEIVER": f"--{'' if config.is_hub else 'no-'}web.enable-remote-write-receiver",
        "STEPWATCH_LOG_LEVEL": config.log.level,
        "STEPWATCH_LOG_FORMAT": config.log.format,
        "STEPWATCH_RAY_ABOVE": str(above_ray(config)),
        "STEPWATCH_RETENTION_TIME": str(config.retention.time),
        "STEPWATCH_RETENTION_SIZE": str(config.retention.size),
    }


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def of_machine(checkout: Path, runs: Path, rendered: Path) -> dict[str, str]:
    """Return the variables of this machine: mounted folders, and the groups that may read them."""
    secrets, targets = mounted(checkout)
    # The name of the machine's zone is where its link leads: /usr/share/zoneinfo/Europe/Berlin.
    zone = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    return {
        "STEPWATCH_PATH": str(runs),
        "STEPWATCH_PATH_GROUP": _group(runs),
        "STEPWATCH_PATH_OWNER": str(runs.stat().st_uid),
        "STEPWATCH_RENDERED": str(rendered),
        "STEPWATCH_SECRETS": str(secrets),
        deployment.GROUP_VARIABLE: os.environ.get(deployment.GROUP_VARIABLE) or _group(secrets),
        "STEPWATCH_TARGETS": str(targets),
        "TZ": os.environ.get("TZ") or zone,
    }


def _group(folder: Path) -> str:
    # Containers get the group of what they read, so that files need not be open to everyone.
    return str(folder.stat().st_gid)
