"""Rendered files checked by promtool and amtool, before they replace the old ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment
from stepwatch.config.loading import written
from stepwatch.programs import programs
from stepwatch.schema.errors import NOTHING, ConfigError, Fault, Problem, Refused

TIMEOUT_SECONDS = 60

_WEBHOOK_URL_FILE_SINCE = (0, 26, 0)


class CheckError(Refused):
    """Raised when Prometheus's or Alertmanager's own tool refuses rendered files; holds its words."""


@dataclass(frozen=True)
class Tool:
    """A program that judges the files of one service: its commands, and the files each is given."""

    name: str
    service: str
    commands: tuple[tuple[tuple[str, ...], str], ...]


TOOLS = (
    Tool(
        "promtool",
        "prometheus",
        (
            # Without that option it would judge the rules as well, which takes most of the time.
            (("check", "config", "--syntax-only"), "prometheus.yml"),
            (("check", "rules"), "rules/*.yml"),
        ),
    ),
    Tool("amtool", "alertmanager", ((("check-config",), "alertmanager.yml"),)),
)


def check(folders: Mapping[str, Path]) -> tuple[str, ...]:
    """Have each tool that is there judge the rendered files; return what was done, a line each.

    Args:
        folders: The folder of rendered files for each service.

    Raises:
        CheckError: A tool refuses a file, or cannot be run.
    """
    return tuple(_judge(tool, folders[tool.service]) for tool in TOOLS if tool.service in folders)


def _judge(tool: Tool, folder: Path) -> str:
    found = ((words, sorted(map(str, folder.glob(pattern)))) for words, pattern in tool.commands)
    commands = [[*words, *files] for words, files in found if files]
    program = _find(tool.name) if commands else None
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


def _find(name: str) -> Path | None:
    # A program named in a variable is used unchecked: a build of one's own may not know its version.
    if named := os.environ.get(programs.WANTED[name].variable):
        return Path(named)
    found = programs.find(name)
    return found.path if found else None


def require_webhook_url_file(config: Config, file: Path, deployment: Deployment) -> None:
    """Check that Alertmanager, and amtool where it is there, know a webhook's ``url_file`` if one is used.

    Args:
        config: What ``file`` says.
        file: The configuration file.
        deployment: For which the files are rendered; containers bring an Alertmanager that knows it.

    Raises:
        ConfigError: One of the two is too old; names each line with a ``url_file``.
    """
    keys = [
        ("receivers", index, "webhook", "url_file")
        for index, receiver in enumerate(config.receivers)
        if receiver.webhook and receiver.webhook.url_file
    ]
    for name in () if not keys else ("amtool",) if deployment.containers else ("alertmanager", "amtool"):
        path = _find(name)
        version = programs.read_version(path) if path else None
        if version and version < _WEBHOOK_URL_FILE_SINCE:
            wanted, lines = programs.WANTED[name], written(file)
            own = "containers bring" if deployment.containers else "`make up` downloads"
            fault = Fault(
                f"needs {wanted.title} 0.26 or later ({path} is {programs.written(version)})",
                expected="url and credentials_file for this version, or a later one",
                fix=f"install {wanted.title} 0.26 or later; or take {path} off PATH and unset "
                f"{wanted.variable}: {own} Alertmanager {wanted.tool.release.version}",
                value=NOTHING,
            )
            raise ConfigError(str(file), [Problem(lines.line(key), fault.below(key)) for key in keys])
