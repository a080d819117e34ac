"""Whether a container of Prometheus or Alertmanager may read a file of this machine.

A mounted file keeps its owner and its mode, and no one is asked: a secret that cannot be read shows
only when the first message is lost.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from stepwatch.schema.errors import Refused

CONTAINER_USER = CONTAINER_GROUP = 65534
"""What the official images run as. compose.yaml gives them the group of the mounted folder besides."""

GROUP_VARIABLE = "STEPWATCH_SECRETS_GROUP"
"""The variable of compose.yaml for that group; `make up` sets it to the folder's own."""

_FILE = (stat.S_IRUSR, "read", "640")
_FOLDER = (stat.S_IXUSR, "search", "750")


def require(path: Path, mounted: Path) -> None:
    """Check that a file below a mounted folder can be read.

    Raises:
        Refused: It cannot, or is no file below that folder but a link that leads out of it.
    """
    if not path.resolve().is_relative_to(mounted.resolve()):
        raise Refused(
            f"{path}: leads to {path.resolve()}, which no container sees. "
            f"Expected: a file below {mounted}. Fix: copy it there."
        )
    group = int(os.environ.get(GROUP_VARIABLE) or mounted.stat().st_gid)
    for step in _steps(path.resolve(), mounted.resolve()):
        bit, verb, mode = _FOLDER if step.is_dir() else _FILE
        if not _allowed(step.stat(), bit, group):
            raise _refusal(step, verb, mode, group)


def _steps(path: Path, mounted: Path) -> Iterator[Path]:
    yield from (folder for folder in reversed(path.parents) if folder.is_relative_to(mounted))
    yield path


def _allowed(status: os.stat_result, owners_bit: int, group: int) -> bool:
    """Whether the mode lets the container; each user is judged by one of the three sets of bits only."""
    if status.st_uid == CONTAINER_USER:
        return bool(status.st_mode & owners_bit)
    if status.st_gid in (group, CONTAINER_GROUP):
        return bool(status.st_mode & owners_bit >> 3)
    return bool(status.st_mode & owners_bit >> 6)


def _refusal(step: Path, verb: str, mode: str, group: int) -> Refused:
    status = step.stat()
    owned = "" if status.st_gid == group else f"chgrp {group} {step} && "
    return Refused(
        f"{step}: mode {stat.S_IMODE(status.st_mode):o} does not let the containers {verb} it. "
        f"Expected: that group {group} may. Fix: {owned}chmod {mode} {step}"
    )
