"""A source of targets whose files may lie on a file system that hangs."""

from __future__ import annotations

import contextlib

from exporter.runs.discovery.target_registry import Source, Target
from exporter.runs.files.mounts import HungError, Mount


class Patient:
    """The targets of a source; those that it named last while its files cannot be read."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.thread = Mount(source.name)
        self._source = source
        self._last: list[Target] = []

    @property
    def read(self) -> float | None:
        """When the source was last in good order."""
        return self._source.read

    def targets(self) -> list[Target]:
        """The targets, within seconds."""
        with contextlib.suppress(HungError):
            self._last = self.thread.call(lambda: list(self._source.targets()))
        return self._last
