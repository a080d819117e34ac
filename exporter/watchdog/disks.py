"""The file systems that hold the state of the stack's parts. One that hangs does not block the others."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Thread
from typing import NamedTuple

from exporter.http.exposition import Metric, Sample, own
from exporter.translatable import Text
from exporter.watchdog.finding import Finding, size

INTERVAL_SECONDS = 5.0
HANG_SECONDS = 30.0
"""A busy disk may keep a new file waiting for a journal's commit."""

RESERVE, RESERVE_FILES = 16 << 20, 100
"""Free bytes and inodes that count as none: Prometheus writes its blocks in files of some MiB."""

TRIAL_BYTES = b"\0" * 4096

SNAPSHOTS = ("silences", "nflog")
"""Alertmanager's snapshots of silences and sent notifications, which a full disk would destroy.

Alertmanager writes each to a new file and renames it over the last one, even if the disk had no room for it.
If it were killed then, it would start without silences and send all notifications again. So the last complete
snapshot has a second name, which `alertmanager/start.sh` restores.
"""
SNAPSHOT_SECONDS = 15.0
"""With free space for that long, Alertmanager has written a complete snapshot: it writes one every 10 s."""

LEFTOVER = re.compile(r"(?:nflog|silences)\.[0-9a-f]+")
"""What Alertmanager writes a snapshot to before it takes the name of the last one, within moments."""
LEFTOVER_SECONDS = 60.0

STOPS = {
    "prometheus": Text("Prometheus stores no samples, so no run is monitored"),
    "alertmanager": Text("Alertmanager loses silences and sent notifications if it restarts"),
    "exporter": Text("Run exporter loses marks and levels if it restarts"),
    "grafana": Text("Grafana cannot save changes"),
}
SUMMARIES = {
    "disk_full": Text("State disk is full"),
    "disk_read_only": Text("State disk is read-only"),
    "disk_hung": Text("State disk does not answer"),
    "disk_failed": Text("State disk cannot be written to"),
}


class Space(NamedTuple):
    """A file system and its room in bytes and inodes; ``files`` is 0 if they have no limit."""

    mountpoint: str
    device: str
    fstype: str
    size: int
    free: int
    files: int
    files_free: int


class Look(NamedTuple):
    """A folder's file system, and the number of the error with which a write failed, 0 for success."""

    space: Space
    error: int


class Folder:
    """The state folder of a part, checked in a thread: ``look`` is the last result, ``problem`` why none."""

    def __init__(self, part: str, path: str) -> None:
        self.part, self.path = part, path
        self.look: Look | None = None
        self.problem = ""
        self.removed = 0
        self._begun = self._without_room = time.monotonic()
        self._busy = True

    def start(self) -> None:
        """Begin to look."""
        Thread(target=self._run, name=self.part, daemon=True).start()

    @property
    def hung(self) -> bool:
        """Whether the file system does not answer."""
        return self._busy and time.monotonic() - self._begun > HANG_SECONDS

    def _run(self) -> None:
        while True:
            self._begun, self._busy = time.monotonic(), True
            try:
                self.look, self.problem = look(self.path), ""
                if self.part == "alertmanager":
                    self.removed += remove_leftovers(self.path, time.time())
                    if _fault(self.look, self.path, [self]):
                        self._without_room = time.monotonic()
                    elif time.monotonic() - self._without_room > SNAPSHOT_SECONDS:
                        link_snapshots(self.path)
            except OSError as problem:
                self.problem = problem.strerror or str(problem)
            self._busy = False
            time.sleep(INTERVAL_SECONDS)


def link_snapshots(folder: str) -> None:
    """Give the snapshots in Alertmanager's data folder, which must be complete, their second names."""
    for name in SNAPSHOTS:
        present, whole = f"{folder}/{name}", f"{folder}/{name}.kept"
        with suppress(OSError):  # there is none yet, or it was replaced at this moment
            if os.path.exists(whole) and os.path.samefile(present, whole):  # noqa: PTH110, PTH121
                continue
            with suppress(FileNotFoundError):
                os.unlink(f"{whole}.new")  # noqa: PTH108
            os.link(present, f"{whole}.new")
            os.rename(f"{whole}.new", whole)  # noqa: PTH104


def remove_leftovers(folder: str, now: float) -> int:
    """Remove the empty files that Alertmanager leaves on a full disk every ten seconds. Return how many."""
    removed = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not LEFTOVER.fullmatch(entry.name):
                continue
            status = entry.stat(follow_symlinks=False)
            is_old = now - status.st_mtime > LEFTOVER_SECONDS
            if stat.S_ISREG(status.st_mode) and not status.st_size and is_old:
                os.unlink(entry.path)  # noqa: PTH108
                removed += 1
    return removed


def look(path: str) -> Look:
    """Check the file system of a folder. Raises OSError if the file system cannot be asked."""
    there = path
    while not os.path.exists(there):  # noqa: PTH110  (pathlib weighs 1 MB)
        there = os.path.dirname(there)  # noqa: PTH120
    room = os.statvfs(there)
    space = Space(
        *_mount(os.path.realpath(there)),
        size=room.f_blocks * room.f_frsize,
        free=room.f_bavail * room.f_frsize,
        files=room.f_files,
        files_free=room.f_favail,
    )
    error = _trial(path) if there == path else 0
    return Look(space, errno.EROFS if room.f_flag & os.ST_RDONLY else error)


def _trial(path: str) -> int:
    """Write a small file and remove it. Return the number of the error, 0 for success."""
    name = f"{path}/.stepwatch-watchdog"
    try:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb", buffering=0) as trial:
                return 0 if trial.write(TRIAL_BYTES) == len(TRIAL_BYTES) else errno.ENOSPC
        finally:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
    except PermissionError:  # another user's folder: what the file system says of itself must do
        return 0
    except OSError as problem:
        return problem.errno or errno.EIO


def _mount(path: str) -> tuple[str, str, str]:
    """Return mount point, device and type of the file system that a path lies on."""

    def unescaped(text: str) -> str:
        return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)

    found = ("/", "", "")  # where several are mounted at one place, the last is seen
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:  # noqa: PTH123
        for line in table:
            before, _, after = line.partition(" - ")
            point = unescaped(before.split(" ")[4])
            if len(point) >= len(found[0]) and (path == point or path.startswith(point.rstrip("/") + "/")):
                fstype, device = after.split(" ")[:2]
                found = (point, unescaped(device), fstype)
    return found


def findings(folders: Iterable[Folder]) -> Iterator[Finding]:
    """Yield each fault of the disks once."""
    by_place: dict[str, list[Folder]] = {}
    for folder in folders:  # by the mount point, or by their own path before that is known
        by_place.setdefault(folder.look.space.mountpoint if folder.look else folder.path, []).append(folder)
    for place, parts in by_place.items():
        problem = next((folder.problem for folder in parts if folder.problem), "")
        look = next((folder.look for folder in parts if folder.look), None)
        found = None
        if hung := [folder for folder in parts if folder.hung]:
            text = Text("no answer for {seconds} s", seconds=f"{HANG_SECONDS:.0f}")
            found = _finding("disk_hung", place, hung, text, Text("check `dmesg` and the file server"))
        elif problem:
            found = _finding("disk_failed", place, parts, problem, "`dmesg`")
        elif look:
            found = _fault(look, place, parts)
        if found:
            yield found


def _fault(look: Look, place: str, folders: Sequence[Folder]) -> Finding | None:
    space, errors = look.space, {folder.look.error for folder in folders if folder.look}
    if space.files and space.files_free < RESERVE_FILES:
        text = Text("{free} inodes free of {all}", free=space.files_free, all=space.files)
        first = Text("check `df -i` and folders with many small files")
        return _finding("disk_full", place, folders, text, first)
    if space.free < RESERVE or errors & {errno.ENOSPC, errno.EDQUOT}:
        room = {"free": size(space.free), "all": size(space.size)}
        text = Text("{free} free of {all}", **room)
        if errno.EDQUOT in errors:
            text = Text("{free} free of {all}, quota exceeded", **room)
        return _finding("disk_full", place, folders, text, Text("free space there; no restart is needed"))
    if errno.EROFS in errors:
        first = Text("check `dmesg`, then remount it")
        return _finding("disk_read_only", place, folders, Text("mounted read-only"), first)
    if other := max(errors):
        return _finding("disk_failed", place, folders, os.strerror(other), "`dmesg`")
    return None


def _finding(fault: str, place: str, folders: Sequence[Folder], text: str, first: str) -> Finding:
    parts = tuple(folder.part for folder in folders)
    stops, *others = (STOPS.get(part, Text(part)) for part in parts)
    for more in others:
        stops = Text("{one}; {more}", one=stops, more=more)
    description = Text(
        "{place}: {text}. {stops}. First: {first}.", place=place, text=text, stops=stops, first=first
    )
    return Finding(fault, place, SUMMARIES[fault], description, parts)


def samples(folders: Sequence[Folder]) -> Iterator[Metric]:
    """Yield the room of each file system, and what was removed, as metrics."""
    spaces = {folder.look.space.mountpoint: folder.look.space for folder in folders if folder.look}
    for name, field, text in (
        ("size_bytes", "size", "Size of a file system that holds state."),
        ("free_bytes", "free", "Free bytes that a part may use."),
        ("files", "files", "Inodes of the file system; 0 if it has no limit."),
        ("files_free", "files_free", "Free inodes of the file system."),
    ):
        values: list[Sample] = [
            (
                {name: getattr(space, name) for name in ("device", "fstype", "mountpoint")},
                getattr(space, field),
            )
            for space in spaces.values()
        ]
        yield own(f"state_filesystem_{name}", text, values)
    removed = sum(folder.removed for folder in folders)
    yield own("leftover_files_removed_total", "Empty files of Alertmanager.", removed)
