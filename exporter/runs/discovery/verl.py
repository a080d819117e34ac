"""The prometheus.yml that verl writes: read for its servers, and never given to a Prometheus.

verl writes the whole file in place, on every node and at every start of a run, with a job `rollout`. Ray
keeps one of its own at the same path, which has no such job.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from exporter.runs.discovery.address import Allowlist
from exporter.runs.discovery.document import DamagedError, Document, Root
from exporter.runs.discovery.target_registry import ROLLOUT, Target

NAME = "verl_file"
USUAL = "session_latest/metrics/prometheus/prometheus.yml"
"""Where verl writes if nothing else is said, below Ray's folder."""

SETTLE_SECONDS = 2.0
"""verl writes its file within milliseconds."""

DEEPEST = 10
"""Lists and tables within each other; verl's file has six."""

MOST_FILES = 100
MOST_EARLIER = 1000

_LABELS = {"job": ROLLOUT, "role": ROLLOUT}


class VerlFiles:
    """The servers in all files that the patterns lead to."""

    name = NAME

    def __init__(self, patterns: Iterable[str], gate: Allowlist, root: Root) -> None:
        self._patterns = tuple(patterns)
        self._gate, self._root = gate, root
        self._files: dict[str, _File] = {}
        self._left_out: frozenset[str] = frozenset()

    @property
    def read(self) -> float | None:
        """When the last of them was in good order."""
        return max(filter(None, (file.document.read for file in self._files.values())), default=None)

    def targets(self) -> Iterator[Target]:
        for path in self._new():
            document = Document(Path(path), NAME, addresses, self._gate, self._root, settle=SETTLE_SECONDS)
            self._files[path] = _File(document)
        for file in self._files.values():
            yield from file.targets()

    def _new(self) -> list[str]:
        paths = {path for pattern in self._patterns for path in _paths(pattern)}
        new = sorted(paths - self._files.keys())
        self._let_go(len(self._files) + len(new) - MOST_FILES, paths)
        room = MOST_FILES - len(self._files)
        self._leave_out(new[room:])
        return new[:room]

    def _let_go(self, surplus: int, paths: Collection[str]) -> None:
        """Of files that are gone, the oldest ones; not before there is need, as their servers may live on."""
        gone = [path for path, file in self._files.items() if path not in paths and not file.document.there]
        for path in gone[: max(0, surplus)]:
            del self._files[path]

    def _leave_out(self, paths: list[str]) -> None:
        """Once for each."""
        for path in paths:
            if path not in self._left_out:
                self._gate.note(NAME, "too_many", f"{path} is left out; {MOST_FILES} files are read")
        self._left_out = frozenset(paths)


def _paths(pattern: str) -> Iterable[str]:
    """What a pattern leads to; a single path is one, whether or not the file is there."""
    return glob.iglob(pattern) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207  (texts)


class _File:
    """One file, and the servers that it listed before: they may be those of another run that lives on."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._earlier: dict[str, None] = {}

    def targets(self) -> Iterator[Target]:
        before = self.document.addresses
        self.document.look()
        now = self.document.addresses
        self._earlier |= dict.fromkeys(before)
        for address in now:
            self._earlier.pop(address, None)
        while len(self._earlier) > MOST_EARLIER:
            del self._earlier[next(iter(self._earlier))]
        for address in now:
            yield Target(address, _LABELS, source=NAME, over=not self.document.there)
        for address in self._earlier:
            yield Target(address, _LABELS, source=NAME, over=True)


def addresses(content: bytes) -> list[str]:
    """The targets of verl's job.

    Raises:
        DamagedError: it is no such file, or only a part of one.
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


_Path = list[Any]
"""Keys, and places in lists, from the outside to the inside; ``None`` where a key is still to come."""


def _scalars(content: bytes) -> Iterator[tuple[_Path, str]]:
    """Each scalar with its path. Nothing is built, so that neither depth nor aliases cost anything."""
    import yaml  # noqa: PLC0415  (2 MB that most machines need not spend)

    path: _Path = []
    try:
        for event in yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                path.append(0 if isinstance(event, yaml.SequenceStartEvent) else None)
                _require_shallow(path)
            elif isinstance(event, yaml.CollectionEndEvent):
                path.pop()
                _advance(path)
            elif isinstance(event, yaml.ScalarEvent) and path and path[-1] is None:
                path[-1] = event.value
            elif isinstance(event, yaml.NodeEvent):  # an alias is not an address
                yield path, getattr(event, "value", "")
                _advance(path)
    except yaml.YAMLError as error:
        raise DamagedError(
            f"is not valid YAML ({getattr(error, 'problem', None) or 'unreadable bytes'})"
        ) from error


def _advance(path: _Path) -> None:
    """On to the next item of a list, or to the next key."""
    if path:
        path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None


def _require_shallow(path: _Path) -> None:
    if len(path) > DEEPEST:
        raise DamagedError(f"has more than {DEEPEST} lists and tables within each other")
