"""Whether config.yaml says something else than what was rendered from it."""

from __future__ import annotations

from pathlib import Path

from stepwatch import output
from stepwatch.config import Refused
from stepwatch.generate import CHECKOUT, Place, rendered

# Which parts there are to read depends on the machine, not on config.yaml.
_OF_THE_MACHINE = "targets"


def pending(config: Path, out: Path, place: Place) -> str | None:
    """What is to be said about an edit that is not in force; ``None`` if there is none.

    Args:
        config: The configuration file.
        out: The folder that holds ``<service>/generated``.
        place: Where the parts run that read it.
    """
    try:
        files = rendered(config, CHECKOUT, place)
        changes = output.compare(out, files)
    except Refused as refusal:
        return f"{config.name} cannot be used; what was rendered last is in force.\n  {refusal}"
    if any(_OF_THE_MACHINE not in path.parts for _, path in changes):
        return f"{config.name} was changed since it was rendered: `make up` puts it in force."
    return None
