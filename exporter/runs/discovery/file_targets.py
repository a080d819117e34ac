"""The servers in files that Ray and verl write."""

from __future__ import annotations

import glob
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from exporter.runs.discovery.address import Allowlist
from exporter.runs.discovery.document import DamagedError, Document
from exporter.runs.discovery.target_registry import RAY, ROLLOUT, Target
from exporter.runs.files.mounts import HungError, Mount

RAY_FILE = "prom_metrics_service_discovery.json"
VERL_FILE = "session_latest/metrics/prometheus/prometheus.yml"
"""Where both write if nothing else is said, below Ray's folder."""

STALE_SECONDS = 60.0
"""A list that Ray did not write for that long is that of a cluster which has ended."""

SETTLE_SECONDS = 2.0
"""verl writes its file within milliseconds."""

DEEPEST = 10
"""Lists and tables within each other; verl's file has six."""

MOST_FILES = 100
MOST_EARLIER = 1000


class FileSource(ABC):
    """A source of targets whose files are read in a thread of its own, since their file system may hang.

    While it hangs, the targets are the last known. ``read`` is when a file was last in good order, in
    seconds since the epoch.
    """

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
    """Return the targets of all groups.

    Raises:
        DamagedError: It is not a list of targets, or only a part of one.
    """
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
    """Return the targets of verl's job.

    Raises:
        DamagedError: It is not YAML, or only a part of a file.
    """
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
    """Yield each scalar with its path; no objects are built, so depth and aliases cost nothing.

    A path has keys and places in lists, from the outside to the inside; ``None`` is a key still to come.
    """
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
