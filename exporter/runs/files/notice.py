"""Logs once what cannot be read, and the fix."""

from __future__ import annotations

import errno
import logging
import os
import shlex
import stat
import time
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from exporter.runs.files.access import Refusal

logger = logging.getLogger(__name__)

MOST = 5
"""Paths that are named at a time; the others are counted."""

MOST_HOURLY = 100
"""Texts about one topic."""

HOUR = 3600.0


class Once:
    """Warns of each text once, and of ``MOST_HOURLY`` an hour of one topic, of which there are few.

    Anyone who makes up texts without end fills no log and no memory, and hushes no other topic. Of each topic
    the last ``MOST_HOURLY`` texts are known.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._topics: defaultdict[Hashable, _Topic] = defaultdict(_Topic)

    def warn(self, topic: Hashable, text: str, fault: Exception | None = None) -> None:
        """Log it, unless it was logged before; of a ``fault`` of ours with the traceback."""
        if self._topics[topic].takes(text, time.monotonic()):
            self._log.warning("%s", text, exc_info=fault)


@dataclass(slots=True)
class _Topic:
    """What was logged about it, the oldest text first; ``count`` texts in the hour since ``begun``."""

    begun: float = -inf
    count: int = 0
    texts: dict[str, None] = field(default_factory=dict)

    def takes(self, text: str, now: float) -> bool:
        """Is it new, and is there room for it?"""
        if now - self.begun >= HOUR:
            self.begun, self.count = now, 0
        if text in self.texts or self.count >= MOST_HOURLY:
            return False
        self.count += 1
        self.texts[text] = None
        if len(self.texts) > MOST_HOURLY:
            del self.texts[next(iter(self.texts))]
        return True


class Notice:
    """Remembers what was logged, for as long as it holds."""

    def __init__(self) -> None:
        self._logged: Collection[Path] = frozenset()

    def log(self, refusals: Mapping[Path, Refusal]) -> None:
        """Log what is new among all that is refused now."""
        new = [refusal for path, refusal in refusals.items() if path not in self._logged]
        for refusal in new[:MOST]:
            logger.error("%s", text(refusal))
        if len(new) > MOST:
            logger.error(
                'And %d more cannot be read, %d in all (stepwatch_files{kind="unreadable"}).',
                len(new) - MOST,
                len(refusals),
            )
        self._logged = frozenset(refusals)


def text(refusal: Refusal) -> str:
    """The path, the reason, who is refused, and the fix."""
    what = "folder cannot be entered" if refusal.passing else "cannot be read"
    problem = f"{_shown(refusal.path)}: {what}: {os.strerror(refusal.number)}."
    if refusal.number not in (errno.EACCES, errno.EPERM):
        return f"{problem} It is tried again and again."
    return f"{problem} {_permission(refusal)}"


def _permission(refusal: Refusal) -> str:
    groups = sorted({os.getegid(), *os.getgroups()})
    us = f"The exporter runs as uid {os.geteuid()}, gids {' '.join(map(str, groups))}"
    try:
        status = refusal.path.stat()
    except OSError:
        return f"{us}. Fix: let it read that path; no restart is needed."
    mode = f"{stat.S_IMODE(status.st_mode):o}"
    which = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    owned = f"the {which} has mode {mode}, uid {status.st_uid}, gid {status.st_gid}"
    return f"{us}; {owned}. Fix: {_fix(refusal, status, groups)}; no restart is needed."


def _fix(refusal: Refusal, status: os.stat_result, groups: Collection[int]) -> str:
    rights, bits = _wanted(refusal, status)
    who, shift = _judged_as(status, groups)
    if status.st_mode >> shift & bits == bits:
        return "its mode allows it, so look at access lists (getfacl), SELinux or the share it lies on"
    return f"chmod {who}+{rights} {_shown(shlex.quote(str(refusal.path)))}"


def _wanted(refusal: Refusal, status: os.stat_result) -> tuple[str, int]:
    """The rights that are needed, as chmod calls them and as bits."""
    if refusal.passing:
        return "x", 1
    return ("rx", 5) if stat.S_ISDIR(status.st_mode) else ("r", 4)


def _judged_as(status: os.stat_result, groups: Collection[int]) -> tuple[str, int]:
    """Which of the three sets of bits counts for us, and where it stands; the others do not."""
    if status.st_uid == os.geteuid():
        return "u", 6
    return ("g", 3) if status.st_gid in groups else ("o", 0)


def _shown(name: object) -> str:
    """A name in one line, whatever bytes it has."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(name))
