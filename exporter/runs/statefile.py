"""What an exporter restart could not rebuild from a log, in one small file per log.

verl empties its log on every start, a resume included: best, start, peak and noise of the steps
before are then nowhere else. The files lie in Stepwatch's own folder; run folders are only read.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from exporter.runs import sealed

TITLE = "stepwatch-state 4"

Kept = dict[str, dict[str, Any]]
"""What must survive, as plain JSON values, by run."""


@dataclass(slots=True)
class Saved:
    """What was known of a log and the runs in it.

    ``carry`` is what each run held before the log's present content began (``None``: nothing),
    ``latest`` what they held after reading up to ``offset``. ``head`` is the start of the content,
    ``watched`` the runs that logged before our eyes. ``writer``: was a writer there; ``None`` if none
    was ever seen. ``marks`` are the operator's, by run: each takes effect where the run passes its
    place, and ``carry`` or ``latest`` say which places are behind it.
    """

    carry: Kept | None
    latest: Kept
    head: str
    offset: int
    watched: list[str]
    writer: bool | None = None
    marks: dict[str, list[list[Any]]] = field(default_factory=dict)

    def before(self, head: bytes, size: float) -> Kept | None:
        """What the runs held before a log with this start and size."""
        same = size >= self.offset and head.hex().startswith(self.head)
        return self.carry if same else self.latest


class StateFolder:
    """Keeps what must survive a restart; ``None`` as folder keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def load(self, log: Path) -> Saved | None:
        """What was saved for a log; a file that cannot be read, or is not as it was written, is none."""
        if self.folder is None:
            return None
        try:
            body = sealed.read(self._file(self.folder, log), TITLE)
        except OSError:
            return None
        return Saved(**orjson.loads(body)) if body is not None else None

    def save(self, log: Path, saved: Saved) -> None:
        """Keep it in place of what was saved before.

        Raises:
            OSError: the state folder cannot be written.
        """
        if self.folder is not None:
            sealed.write(self._file(self.folder, log), TITLE, orjson.dumps(asdict(saved)))

    def forget(self, log: Path) -> None:
        """The log is gone for good.

        Raises:
            OSError: the state folder cannot be written.
        """
        if self.folder is not None:
            self._file(self.folder, log).unlink(missing_ok=True)

    @staticmethod
    def _file(folder: Path, log: Path) -> Path:
        return folder / f"{sha256(os.fsencode(log.absolute())).hexdigest()[:32]}.state"
