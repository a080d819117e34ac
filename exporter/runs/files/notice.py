"""What the system does not let the exporter read: logged once, with the fix."""

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

logger = logging.getLogger(__name__)
MOST = 5  # Paths that are named at a time; the others are counted
MOST_HOURLY = 100  # Texts about one topic
HOUR = 3600.0
_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
"""Errors of files that are gone, are folders by now, or never were: there is nothing to read."""


class Once:
    """Warns of each text once, ``MOST_HOURLY`` an hour of one topic, so that made-up texts fill nothing."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._topics: defaultdict[Hashable, _Topic] = defaultdict(_Topic)

    def warn(self, topic: Hashable, text: str, fault: Exception | None = None) -> None:
        """Log it, unless it was logged before; of a ``fault`` of ours with the traceback."""
        known, now = self._topics[topic], time.monotonic()
        if now - known.begun >= HOUR:
            known.begun, known.count = now, 0
        if text in known.texts or known.count >= MOST_HOURLY:
            return
        known.count += 1
        known.texts[text] = None
        if len(known.texts) > MOST_HOURLY:
            del known.texts[next(iter(known.texts))]
        self._log.warning("%s", text, exc_info=fault)


@dataclass(slots=True)
class _Topic:
    """What was logged about it, the oldest text first; ``count`` texts in the hour since ``begun``."""

    begun: float = -inf
    count: int = 0
    texts: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A path that cannot be read, and the error's number; ``passing``: it is only a folder on the way."""

    path: Path
    number: int
    passing: bool = False


@dataclass(slots=True)
class Refusals:
    """What was refused in one look at the watched paths; each path once."""

    by_path: dict[Path, Refusal] = field(default_factory=dict)

    def note(self, path: Path, error: OSError) -> None:
        """Note an error, if it says that something is there which cannot be read."""
        found = refusal(path, error)
        if found:
            self.by_path.setdefault(found.path, found)


def refusal(path: Path, error: OSError) -> Refusal | None:
    """What cannot be read: the path, or the first folder on the way to it; ``None`` if it can, or is gone."""
    number = error.errno or errno.EIO
    if number in _NOTHING_THERE:
        return None
    folder = _closed_folder(path) if number in (errno.EACCES, errno.EPERM) else None
    return Refusal(folder, number, passing=True) if folder else Refusal(path, number)


def _closed_folder(path: Path) -> Path | None:
    """The first folder on the way to a path, and to what it links to, that may not be passed."""
    if os.access(path.parent, os.X_OK) and not os.path.islink(path):  # noqa: PTH114  (Path.is_symlink may raise)
        return None
    ways = (Path(os.path.abspath(path)), Path(os.path.realpath(path)))  # noqa: PTH100  (resolve may raise)
    folders = (folder for way in ways for folder in reversed(way.parents))
    return next((folder for folder in folders if not os.access(folder, os.X_OK)), None)


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
        return f"{problem} The exporter keeps retrying."
    return f"{problem} {_permission(refusal)}"


def _permission(refusal: Refusal) -> str:
    groups = sorted({os.getegid(), *os.getgroups()})
    us = f"The exporter runs as uid {os.geteuid()}, gids {' '.join(map(str, groups))}"
    try:
        status = refusal.path.stat()
    except OSError:
        return f"{us}. Fix: let it read that path; no restart is needed."
    is_folder = stat.S_ISDIR(status.st_mode)
    if refusal.passing:
        rights, bits = "x", 1
    else:
        rights, bits = ("rx", 5) if is_folder else ("r", 4)
    # One of the three sets of bits counts for us; the others do not.
    if status.st_uid == os.geteuid():
        who, shift = "u", 6
    else:
        who, shift = ("g", 3) if status.st_gid in groups else ("o", 0)
    if status.st_mode >> shift & bits == bits:
        fix = "its mode allows it, so check access lists (getfacl), SELinux, or the share that it is on"
    else:
        fix = f"chmod {who}+{rights} {_shown(shlex.quote(str(refusal.path)))}"
    kind, mode = "folder" if is_folder else "file", f"{stat.S_IMODE(status.st_mode):o}"
    owned = f"the {kind} has mode {mode}, uid {status.st_uid}, gid {status.st_gid}"
    return f"{us}; {owned}. Fix: {fix}; no restart is needed."


def _shown(name: object) -> str:
    """A name in one line, whatever bytes it has."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(name))
