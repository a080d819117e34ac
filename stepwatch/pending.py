"""Which configuration file is in force, and whether it says something else than what was rendered."""

from __future__ import annotations

import shlex
from pathlib import Path

from stepwatch import output
from stepwatch.generate import Place, rendered
from stepwatch.layout import CONFIG, RESOURCES
from stepwatch.schema.errors import Refused

# Which parts there are to read depends on the machine, not on config.yaml.
_OF_THE_MACHINE = "targets"


def instead_of_usual(config: Path) -> str | None:
    """What is to be said if the file in force is not the checkout's own; ``None`` if it is."""
    if config.resolve() == CONFIG.resolve():
        return None
    return f"In force is {config}, which `make up CONFIG=file` named last; edits of {CONFIG} are not heeded."


def pending(config: Path, out: Path, place: Place) -> str | None:
    """What is to be said about an edit that is not in force; ``None`` if there is none.

    Args:
        config: The configuration file.
        out: The folder that holds ``<service>/generated``.
        place: Where the parts run that read it.
    """
    try:
        files = rendered(config, RESOURCES, place)
        changes = output.compare(out, files)
    except Refused as refusal:
        return f"{config.name} cannot be used; what was rendered last is in force.\n  {refusal}"
    if any(_OF_THE_MACHINE not in path.parts for _, path in changes):
        return f"{config.name} was changed since it was rendered: {_up(config)} puts it in force."
    return None


def _up(config: Path) -> str:
    return (
        "`make up`"
        if config.resolve() == CONFIG.resolve()
        else f"`make up CONFIG={shlex.quote(str(config))}`"
    )
