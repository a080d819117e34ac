"""Takes the containers down."""

from __future__ import annotations

from stepwatch.compose.engine import Engine
from stepwatch.tables import Say


def down(project: Engine, say: Say) -> int:
    """Remove every container of the stack; volumes, with data, silences and the password, stay.

    Returns:
        0 when nothing of it runs any more, else what Compose ended with.
    """
    if not project.services():
        say("Stepwatch is not running.")
        return 0
    if code := project.show("down", "--remove-orphans"):
        return code
    say("Stepwatch is down. Its data stays in Docker's volumes (`docker volume ls`).")
    return 0
