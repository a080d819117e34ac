"""Links in a folder of another machine, or of the machine around this container, as they are meant there."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

MOST_LINKS = 40
"""On one way; then they lead in a circle."""


class Root:
    """``folder`` is where the other file system is seen, such as ``/host``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def real(self, path: Path) -> Path:
        """A path with its links followed as they are meant; as it is if it does not lie below the folder.

        Ray's links are absolute, so that from here they would lead to nowhere.
        """
        if not path.is_relative_to(self._folder):
            return path
        ahead = _parts(path.relative_to(self._folder))
        behind: list[str] = []
        for _ in range(MOST_LINKS):
            linked = self._passed(ahead, behind)
            if linked is None:
                break
            ahead += _parts(PurePath(linked))
            behind = [] if linked.startswith("/") else behind
        return self._folder.joinpath(*behind, *reversed(ahead))

    def _passed(self, ahead: list[str], behind: list[str]) -> str | None:
        """Go on up to the next link; returns where it leads, ``None`` at the end of the way."""
        while ahead:
            part = ahead.pop()
            try:
                return os.readlink(self._folder.joinpath(*behind, part))  # noqa: PTH115  (text as it stands)
            except OSError:
                behind[:] = behind[:-1] if part == ".." else [*behind, part]
        return None


def _parts(path: PurePath) -> list[str]:
    """The last one first."""
    return [part for part in reversed(path.parts) if part != "/"]
