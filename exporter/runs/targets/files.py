"""Files with lists of servers: Ray's own list, and the prometheus.yml that verl writes.

Such a file is small, is read whole, and is written again and again: in place, so that half of it is there
for a moment, or by replacing it. What it said when it was last in good order holds until it says something
better.
"""

from __future__ import annotations

import glob
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from exporter.runs.files.mounts import HungError, Mount, Resolution
from exporter.runs.targets.target import RAY, ROLLOUT, Allowlist, Target

RAY_FILE = "prom_metrics_service_discovery.json"
VERL_FILE = "session_latest/metrics/prometheus/prometheus.yml"
"""Where both write if nothing else is said, below Ray's folder."""
MOST_BYTES = 1 << 20
MOST_FILES = 100
DEEPEST = 10  # lists and tables within each other; verl's file has six


class DamagedError(Exception):
    """Raised for a file or content that is not what it should be: its text says in what."""

    def __init__(self, text: str, reason: str = "damaged") -> None:
        super().__init__(f"{text}; its last valid content stays in use" if reason == "damaged" else text)
        self.reason = reason


def ray_addresses(content: bytes) -> list[str]:
    """Return the targets of all groups of Ray's list. Raises DamagedError."""
    try:
        lists = [group["targets"] for group in orjson.loads(content)]
    except orjson.JSONDecodeError as error:
        raise DamagedError(f"is not valid JSON ({error})" if content.strip() else "is empty") from error
    except (TypeError, KeyError):
        lists = [None]
    if not all(isinstance(targets, list) for targets in lists):
        raise DamagedError('is not a list of targets, such as [{"targets": ["10.0.0.7:8080"]}]')
    found = [target for targets in lists for target in targets]
    if not all(isinstance(target, str) for target in found):
        raise DamagedError("lists a target that is not a string")
    return found


def verl_addresses(content: bytes) -> list[str]:
    """Return the targets of verl's job. Raises DamagedError: it is not YAML, or only a part of a file."""
    if not content.endswith(b"\n"):
        raise DamagedError("is empty" if not content else "ends in the middle of a line")
    jobs: dict[Any, str] = {}
    targets: list[tuple[Any, str]] = []
    for path, value in _scalars(content):
        match path:
            case ["scrape_configs", job, "job_name"]:
                jobs[job] = value
            case ["scrape_configs", job, "static_configs", _, "targets", _]:
                targets.append((job, value))
    return [target for job, target in targets if jobs.get(job) == ROLLOUT]


def _scalars(content: bytes) -> Iterator[tuple[list[Any], str]]:
    """Yield each scalar with its path of keys and places; ``None`` is a key to come. No objects are built."""
    import yaml  # noqa: PLC0415  (2 MB that most machines need not spend)

    path: list[Any] = []
    try:
        for event in yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                path.append(0 if isinstance(event, yaml.SequenceStartEvent) else None)
                if len(path) > DEEPEST:
                    raise DamagedError(f"has more than {DEEPEST} lists and tables within each other")
                continue
            if isinstance(event, yaml.ScalarEvent) and path and path[-1] is None:
                path[-1] = event.value
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                path.pop()
            elif isinstance(event, yaml.NodeEvent):  # an alias is not an address
                yield path, getattr(event, "value", "")
            else:
                continue
            if path:  # on to the next item of a list, or to the next key
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "unreadable bytes"
        raise DamagedError(f"is not valid YAML ({problem})") from error


class Kind(NamedTuple):
    """A kind of list: how it is read, and when it counts; in seconds.

    A content counts once it is ``settle`` old, for files that are written in place; a list that was not
    written for ``stale`` is that of a cluster which has ended. ``earlier``: how many servers stay, while they
    answer, that it listed before: they may be those of another run that lives on.
    """

    name: str
    role: str
    parse: Callable[[bytes], list[str]]
    settle: float = 0.0
    stale: float = math.inf
    earlier: int = 0


RAY_LIST = Kind("ray_file", RAY, ray_addresses, stale=60.0)
"""Nodes, autoscaler and dashboard: the head node writes them every five seconds, by renaming."""
VERL_LIST = Kind("verl_file", ROLLOUT, verl_addresses, settle=2.0, earlier=1000)
"""verl writes within milliseconds. Ray keeps a file of its own at the same path, without verl's job."""


@dataclass(slots=True)
class _File:
    """A file and what it said last in good order; ``judged`` is the ``version`` that was read last.

    ``there``: it was there at the last look; ``written`` is its own time of change, ``read`` when it was last
    in good order, in seconds since the epoch.
    """

    addresses: tuple[str, ...] = ()
    earlier: Sequence[str] = ()
    there: bool = False
    good: bool = False
    written: float = 0.0
    read: float | None = None
    version: tuple[int, ...] | None = None
    judged: tuple[int, ...] | None = None


class ListFiles:
    """A source of targets: files of one kind, by paths or globs, seen in the file system at ``root``.

    They are read in a thread of its own, as their mount may hang; meanwhile the last targets hold.
    """

    def __init__(self, kind: Kind, patterns: Iterable[str], allowlist: Allowlist, root: Path) -> None:
        self.name, self.thread = kind.name, Mount(kind.name)
        self.read: float | None = None
        self._kind, self._patterns = kind, tuple(patterns)
        self._allowlist, self._root = allowlist, root
        self._files: dict[str, _File] = {}
        self._left_out: frozenset[str] = frozenset()
        self._last: list[Target] = []

    def targets(self) -> list[Target]:
        """Return the targets, within seconds."""
        with suppress(HungError):
            self._last = self.thread.call(self._look)
        return self._last

    def _look(self) -> list[Target]:
        files, paths = self._files, set[str]()
        for pattern in self._patterns:
            # a single path is one, whether or not the file is there
            paths.update(glob.iglob(pattern) if glob.has_magic(pattern) else [pattern])  # noqa: PTH207  (texts)
        new = sorted(paths - files.keys())
        # Files that are gone leave when there is need, the oldest first: their servers may live on.
        gone = [path for path, file in files.items() if path not in paths and not file.there]
        for path in gone[: max(0, len(files) + len(new) - MOST_FILES)]:
            del files[path]
        room = MOST_FILES - len(files)
        for path in new[room:]:
            if path not in self._left_out:
                words = f"{path} is skipped; at most {MOST_FILES} files are read"
                self._allowlist.note(self.name, "too_many", words)
        self._left_out = frozenset(new[room:])
        files.update((path, _File()) for path in new[:room])
        labels, found = {"job": self._kind.role, "role": self._kind.role}, []
        for path, file in files.items():
            self._read(path, file)
            over = not file.there or time.time() - file.written > self._kind.stale
            found += [Target(each, labels, over=over) for each in file.addresses]
            found += [Target(each, labels, over=True) for each in file.earlier]
        self.read = max(filter(None, (file.read for file in files.values())), default=None)
        return found

    def _read(self, path: str, file: _File) -> None:
        """Read a file again if it changed; what is wrong with it is noted once for each content."""
        try:
            content = self._content(real_path(Path(path), self._root), file)
            if content is None:
                return
            addresses = self._allowlist.passed(self.name, path, self._kind.parse(content))
        except (FileNotFoundError, NotADirectoryError):
            if file.there:
                self._allowlist.note(self.name, "gone", f"{path} does not exist, or is a broken link")
            file.there, file.good, file.judged = False, False, None
        except (OSError, DamagedError) as problem:
            reason, words = "unreadable", f"cannot be read ({getattr(problem, 'strerror', '')})"
            if isinstance(problem, DamagedError):
                reason, words = problem.reason, str(problem)
            if file.version != file.judged:
                self._allowlist.note(self.name, reason, f"{path} {words}")
            file.judged, file.good = file.version, False
        else:
            earlier, listed = dict.fromkeys((*file.earlier, *file.addresses)), set(addresses)
            gone = [each for each in earlier if each not in listed]
            file.earlier = gone[max(0, len(gone) - self._kind.earlier) :]
            file.addresses, file.judged, file.good, file.read = addresses, file.version, True, time.time()

    def _content(self, path: Path, file: _File) -> bytes | None:
        """What a file holds; ``None`` if it did not change, or is being written. Raises DamagedError."""
        file.version = -1, -1, -1
        status = path.stat()
        file.there, file.written, file.version = True, status.st_mtime, _version(status)
        if file.version == file.judged:
            file.read = time.time() if file.good else file.read
            return None
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError("is not a file", "unreadable")
        if status.st_size > MOST_BYTES:
            raise DamagedError(f"has more than {MOST_BYTES} bytes", "too_large")
        if 0 <= time.time() - status.st_mtime < self._kind.settle:
            return None
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
            return content if _version(os.fstat(opened.fileno())) == file.version else None


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def real_path(path: Path, root: Path) -> Path:
    """Return a path with its links followed as they are meant in the file system that is seen at ``root``.

    Ray's links are absolute, so that from a container they would lead to nowhere. A path that does not lie
    below ``root`` stays as it is, and so does one whose links lead in a circle.
    """
    if not path.is_relative_to(root):
        return path
    resolution = Resolution(str(path.relative_to(root)), str(root), str(root))
    with suppress(OSError):
        while not resolution.done:
            resolution.step()
    return Path(resolution.real) if resolution.done else path
