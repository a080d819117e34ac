"""The sources of targets: files that Ray and verl write, and what the logs of runs report.

Such a file is small, is read whole, and is written again and again: in place, so that half of it is there
for a moment, or by replacing it. What it said when it was last in good order holds until it says something
better.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from exporter.runs.discovery.address import Allowlist
from exporter.runs.discovery.targets import RAY, ROLLOUT, Target
from exporter.runs.files.mounts import HungError, Mount, Resolution
from exporter.runs.logs.log import Log
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Servers

MOST_BYTES = 1 << 20
_Version = tuple[int, int, int]


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


class DamagedError(Exception):
    """Raised for a content that is not what it should be; its text says in what."""


class Document:
    """The servers that one file lists.

    ``there``: it was there when it was last looked at. ``written`` is its own time of change and ``read``
    when it was last found in good order, in seconds since the epoch. ``parse`` returns the addresses in a
    content or raises ``DamagedError``. A content counts once it is ``settle`` seconds old, which is for
    files that are written in place.
    """

    def __init__(
        self,
        path: Path,
        source: str,
        parse: Callable[[bytes], list[str]],
        allowlist: Allowlist,
        root: Path,
        *,
        settle: float = 0.0,
    ) -> None:
        self.path = path
        self.addresses: tuple[str, ...] = ()
        self.there = False
        self.written = 0.0
        self.read: float | None = None
        self._source, self._parse, self._allowlist = source, parse, allowlist
        self._root, self._settle = root, settle
        self._judged: _Version | None = None
        self._good = False

    def look(self) -> None:
        """Read it again if it changed."""
        path = real_path(self.path, self._root)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if self.there:
                self._note("gone", "does not exist, or is a broken link")
            self.there, self._good, self._judged = False, False, None
            return
        except OSError as error:
            self._refuse((-1, -1, -1), "unreadable", f"cannot be read ({error.strerror})")
            return
        self.there, self.written = True, status.st_mtime
        version = _version(status)
        if version == self._judged:
            self.read = time.time() if self._good else self.read
        elif not stat.S_ISREG(status.st_mode):
            self._refuse(version, "unreadable", "is not a file")
        elif status.st_size > MOST_BYTES:
            self._refuse(version, "too_large", f"has more than {MOST_BYTES} bytes")
        elif not 0 <= time.time() - status.st_mtime < self._settle:
            self._read(path, version)

    def _read(self, path: Path, version: _Version) -> None:
        try:
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
                if _version(os.fstat(file.fileno())) != version:
                    return  # it is being written; by the next look it has settled
            addresses = self._parse(content)
        except OSError as error:
            self._refuse(version, "unreadable", f"cannot be read ({error.strerror})")
        except DamagedError as problem:
            self._refuse(version, "damaged", f"{problem}; its last valid content stays in use")
        else:
            self.addresses = self._allowlist.passed(self._source, self.path, addresses)
            self._judged, self._good, self.read = version, True, time.time()

    def _refuse(self, version: _Version, reason: str, words: str) -> None:
        if version != self._judged:  # once for each content
            self._note(reason, words)
        self._judged, self._good = version, False

    def _note(self, reason: str, words: str) -> None:
        self._allowlist.note(self._source, reason, f"{self.path} {words}")


def _version(status: os.stat_result) -> _Version:
    return status.st_ino, status.st_size, status.st_mtime_ns


RAY_FILE = "prom_metrics_service_discovery.json"
VERL_FILE = "session_latest/metrics/prometheus/prometheus.yml"
"""Where both write if nothing else is said, below Ray's folder."""
STALE_SECONDS = 60.0  # A list that Ray did not write for that long is that of a cluster which has ended
SETTLE_SECONDS = 2.0  # verl writes its file within milliseconds
DEEPEST = 10  # Lists and tables within each other; verl's file has six
MOST_FILES = 100
MOST_EARLIER = 1000


class FileSource(ABC):
    """Reads its files in a thread of its own, as their mount may hang; meanwhile the last targets hold."""

    name: str

    def __init__(self) -> None:
        self.read: float | None = None
        self.thread = Mount(self.name)
        self._last: list[Target] = []

    def targets(self) -> list[Target]:
        """Return the targets, within seconds."""
        with suppress(HungError):
            self._last = self.thread.call(self._listed)
        return self._last

    @abstractmethod
    def _listed(self) -> list[Target]:
        """Read the files."""


class RayFiles(FileSource):
    """Ray's own list of its targets: nodes, autoscaler and dashboard; and others of its form.

    The dashboard of the head node writes it every five seconds, by renaming; since some release the path in
    Ray's folder is a link into the folder of the session.
    """

    name = "ray_file"

    def __init__(self, paths: Iterable[Path], allowlist: Allowlist, root: Path) -> None:
        super().__init__()
        self._documents = [Document(path, self.name, ray_addresses, allowlist, root) for path in paths]

    def _listed(self) -> list[Target]:
        labels = {"job": RAY, "role": RAY}
        found = []
        for document in self._documents:
            document.look()
            over = not document.there or time.time() - document.written > STALE_SECONDS
            found += [Target(each, labels, source=self.name, over=over) for each in document.addresses]
        self.read = max(filter(None, (document.read for document in self._documents)), default=None)
        return found


def ray_addresses(content: bytes) -> list[str]:
    """Return the targets of all groups. Raises DamagedError."""
    if not content.strip():
        raise DamagedError("is empty")
    try:
        lists = [group["targets"] for group in orjson.loads(content)]
    except orjson.JSONDecodeError as error:
        raise DamagedError(f"is not valid JSON ({error})") from error
    except (TypeError, KeyError):
        lists = [None]
    if not all(isinstance(targets, list) for targets in lists):
        raise DamagedError('is not a list of targets, such as [{"targets": ["10.0.0.7:8080"]}]')
    found = [target for targets in lists for target in targets]
    if not all(isinstance(target, str) for target in found):
        raise DamagedError("lists a target that is not a string")
    return found


class VerlFiles(FileSource):
    """The prometheus.yml that verl writes: read for its servers, and never given to a Prometheus.

    verl writes the whole file in place, on every node and at every start of a run, with a job `rollout`. Ray
    keeps one of its own at the same path, which has no such job. ``patterns`` are paths or globs.
    """

    name = "verl_file"

    def __init__(self, patterns: Iterable[str], allowlist: Allowlist, root: Path) -> None:
        super().__init__()
        self._patterns = tuple(patterns)
        self._allowlist, self._root = allowlist, root
        self._files: dict[str, _VerlFile] = {}
        self._left_out: frozenset[str] = frozenset()

    def _listed(self) -> list[Target]:
        files = self._files
        paths: set[str] = set()
        for pattern in self._patterns:
            # A single path is one, whether or not the file is there.
            paths.update(glob.iglob(pattern) if glob.has_magic(pattern) else [pattern])  # noqa: PTH207  (texts)
        new = sorted(paths - files.keys())
        # Files that are gone leave when there is need, the oldest first: their servers may live on.
        gone = [path for path, file in files.items() if path not in paths and not file.document.there]
        for path in gone[: max(0, len(files) + len(new) - MOST_FILES)]:
            del files[path]
        room = MOST_FILES - len(files)
        for path in new[room:]:
            if path not in self._left_out:
                words = f"{path} is skipped; at most {MOST_FILES} files are read"
                self._allowlist.note(self.name, "too_many", words)
        self._left_out = frozenset(new[room:])
        for path in new[:room]:
            files[path] = _VerlFile(
                Document(
                    Path(path), self.name, verl_addresses, self._allowlist, self._root, settle=SETTLE_SECONDS
                )
            )
        found = [target for file in files.values() for target in file.targets()]
        self.read = max(filter(None, (file.document.read for file in files.values())), default=None)
        return found


class _VerlFile:
    """One file, and the servers that it listed before: they may be those of another run that lives on."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._earlier: dict[str, None] = {}

    def targets(self) -> Iterator[Target]:
        earlier = self._earlier | dict.fromkeys(self.document.addresses)
        self.document.look()
        now = self.document.addresses
        for address in now:
            earlier.pop(address, None)
        self._earlier = dict.fromkeys(list(earlier)[-MOST_EARLIER:])
        labels = {"job": ROLLOUT, "role": ROLLOUT}
        for address in now:
            yield Target(address, labels, source=VerlFiles.name, over=not self.document.there)
        for address in self._earlier:
            yield Target(address, labels, source=VerlFiles.name, over=True)


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


class _Mention(NamedTuple):
    """What a log says; ``run`` is empty while the log has no step, ``over`` once the run has ended."""

    servers: Servers
    run: str = ""
    over: bool = False


class LogTargets:
    """Gets from ``update`` what the logs say now."""

    name = "log"

    def __init__(self, allowlist: Allowlist) -> None:
        self.read: float | None = None
        self._allowlist = allowlist
        self._mentions: list[_Mention] = []
        self._passed: dict[_Mention, tuple[str, ...]] = {}

    def update(self, views: Iterable[View], logs: Iterable[Log]) -> None:
        """Take what the logs of runs report, and those without a run yet; of an address the last counts."""
        self._mentions = [_Mention(servers) for log in logs if log.run_set is None for servers in log.servers]
        for view in sorted(views, key=lambda view: (view.state == "running", view.run.times.last or 0.0)):
            over = view.state != "running"
            for run in (view.run, *view.duplicates):  # the console's log may not be the one that is shown
                self._mentions += [_Mention(servers, view.name, over) for servers in run.servers]
        self.read = time.time() if self._mentions else self.read

    def targets(self) -> Iterator[Target]:
        """Yield the servers of all mentions; those of a mention are checked once."""
        passed, self._passed = self._passed, {}
        for one in self._mentions:
            if one not in passed:
                place = one.run or "a log without a step"
                passed[one] = self._allowlist.passed(self.name, place, one.servers.addresses)
            self._passed[one] = passed[one]
        for one, addresses in self._passed.items():
            labels = {"job": ROLLOUT, "role": ROLLOUT, **({"run": one.run} if one.run else {})}
            for address in addresses:
                yield Target(address, labels, one.servers.path, self.name, one.over)
