"""Password files as old Alertmanagers read them."""

from __future__ import annotations

from pathlib import Path

from stepwatch.config import Config
from stepwatch.deploy.native.errors import StackError
from stepwatch.programs.programs import Program, written

_TRIMS = (0, 27, 0)


def require_bare(config: Config, alertmanager: Program) -> None:
    """Check that mail passwords have nothing around them, if this Alertmanager would send that along.

    Raises:
        StackError: names the first file that has.
    """
    for receiver in config.receivers:
        path = receiver.mail.password_file if receiver.mail else None
        if path and alertmanager.version < _TRIMS and not _bare(path):
            raise StackError(
                f"receivers: {receiver.name}: mail.password_file: {path} ends with a line end or a space, "
                f"and Alertmanager {written(alertmanager.version)} takes that for a part of it. Expected: "
                f"nothing but the password. Fix: printf %s PASSWORD > {path}, or Alertmanager 0.27 or later."
            )


def _bare(path: Path) -> bool:
    content = path.read_bytes()
    return content == content.strip()
