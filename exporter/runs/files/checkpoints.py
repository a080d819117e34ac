"""The checkpoints of a wrapped trainer, as `stepwatch run` notes them beside its log.

The file ``NAME.log.checkpoints`` is replaced as a whole, by a rename. The exporter reads it, and never the
checkpoints: those may lie on a disk that it does not see.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".checkpoints"
MOST = 20
"""That are noted: the last ones, and those that are kept."""
_MOST_BYTES = 65536


class SavedStep(NamedTuple):
    """A complete checkpoint.

    Attributes:
        name: Its folder, below the trainer's, or beside it where it is one that is kept.
        step: The training step after which it was saved.
    """

    name: str
    step: int


def beside(log: Path) -> Path:
    """Where the checkpoints of this log are noted."""
    return log.with_name(log.name + SUFFIX)


def read(log: Path) -> tuple[SavedStep, ...]:
    """Return the checkpoints of a log, the oldest first; none where nothing of use is noted."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        file = os.open(beside(log), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = json.loads(os.read(file, _MOST_BYTES))["complete"]
        finally:
            os.close(file)
        return tuple(SavedStep(str(name)[:200], int(step)) for name, step in found[:MOST])
    return ()


def write(log: Path, checkpoints: Sequence[SavedStep]) -> None:
    """Note the checkpoints of a log.

    Raises:
        OSError: The folder of the log cannot be written to.
    """
    path = beside(log)
    written = path.with_name(f".{path.name}.new")
    written.write_text(f"{json.dumps({'complete': checkpoints})}\n", encoding="utf-8")
    written.replace(path)
