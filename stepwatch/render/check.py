"""Rendered files checked by promtool and amtool, before they replace the old ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stepwatch.schema.errors import Refused
from stepwatch.system import programs

TIMEOUT_SECONDS = 60


class CheckError(Refused):
    """Raised when Prometheus's or Alertmanager's own tool refuses rendered files; holds its words."""


@dataclass(frozen=True)
class Tool:
    """A program that judges the files of one service: its commands, and the files each is given."""

    name: str
    service: str
    commands: tuple[tuple[tuple[str, ...], str], ...]


_CONFIG = ("check", "config", "--syntax-only")
TOOLS = (
    Tool(
        "promtool",
        "prometheus",
        (
            # Without that option it would judge the rules as well, which takes most of the time.
            (_CONFIG, "prometheus.yml"),
            ((*_CONFIG, "--agent"), "receiver.yml"),
            (("check", "rules"), "rules/*.yml"),
        ),
    ),
    Tool("amtool", "alertmanager", ((("check-config",), "alertmanager.yml"),)),
)


def check(folders: Mapping[str, Path], *, agent: bool = False) -> tuple[str, ...]:
    """Have each tool that is here judge the rendered files; return a line each. Raises ``CheckError``."""
    present = (tool for tool in TOOLS if tool.service in folders)
    return tuple(_judge(tool, folders[tool.service], ("--agent",) if agent else ()) for tool in present)


def _judge(tool: Tool, folder: Path, more: tuple[str, ...]) -> str:
    found = ((words, sorted(map(str, folder.glob(pattern)))) for words, pattern in tool.commands)
    commands = [[*words, *(more if words == _CONFIG else ()), *files] for words, files in found if files]
    program = find(tool.name) if commands else None
    if program is None:
        reason = "was not found" if commands else "has nothing to read"
        return f"{tool.name} {reason}: the files of {tool.service} are not checked."
    for command in commands:
        try:
            done = subprocess.run(
                [program, *command], capture_output=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CheckError(
                f"{tool.name} cannot be run ({error}); nothing was written. Expected: a program that judges "
                f"the files of {tool.service}. Fix: name another in {programs.WANTED[tool.name].variable}."
            ) from error
        if done.returncode:
            words = (done.stdout + done.stderr).decode(errors="replace").strip()
            raise CheckError(
                f"{tool.name} refuses the files of {tool.service}; nothing was written. It says:\n"
                + words.replace(str(folder), f"{tool.service}/generated")
            )
    return f"{program} finds no fault in the files of {tool.service}."


def find(name: str) -> Path | None:
    """The program that judges, or the server that will read the files; None if it is not here."""
    # A program named in a variable is used unchecked: a build of one's own may not know its version.
    if named := os.environ.get(programs.WANTED[name].variable):
        return Path(named)
    found = programs.find(name)
    return found.path if found else None
