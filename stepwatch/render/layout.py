"""Where things lie: in a checkout below its root; of an installation, in package and user's folders."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.installation import INSTALLED, adapt
from stepwatch.config.cluster import CREDENTIALS
from stepwatch.render import output
from stepwatch.schema.errors import quoted
from stepwatch.system.environment import CHECKOUT, RESOURCES
from stepwatch.system.terminal import Say


def _of_user(variable: str, usual: str) -> Path:
    """A folder of the XDG base directory specification, which ignores relative paths in its variables."""
    named = Path(os.environ.get(variable, ""))
    return (named if named.is_absolute() else Path.home() / usual) / "stepwatch"


CONFIG = (_of_user("XDG_CONFIG_HOME", ".config") if INSTALLED else CHECKOUT) / "config.yaml"
"""The configuration file of commands that name none."""

STATE = _of_user("XDG_STATE_HOME", ".local/state") if INSTALLED else CHECKOUT / ".stepwatch"
"""What a native stack writes, unless a variable names another folder."""

TEMPLATE_CACHE = _of_user("XDG_CACHE_HOME", ".cache") / "templates" if INSTALLED else None
"""The folder of compiled templates; ``None`` means beside the templates."""

_RUNS = "path: ./runs\n"


def credentials() -> Path:
    """Return the folder of the hub with the credential of each node, in that of the secrets."""
    return Path(os.environ.get("STEPWATCH_SECRETS") or CONFIG.parent / "secrets").absolute() / CREDENTIALS


def config() -> Path:
    """Return the configuration file of a command that names none: the user's, or the default one."""
    return CONFIG if CONFIG.exists() else RESOURCES / CONFIG.name


def write_config(say: Say) -> None:
    """Write the user's config.yaml of an installation if there is none. Raises ``OutputError``."""
    if not INSTALLED or CONFIG.exists():
        return
    lines = (RESOURCES / CONFIG.name).read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if "docker compose" not in line)
    text = text.replace(_RUNS, f"path: {quoted(str(STATE / 'runs'))}\n")
    output.replace_file(CONFIG, adapt(text).encode())
    say(f"Wrote the default settings to {CONFIG}.")
