"""The file of panels, taken up anew whenever it is replaced, by a thread of its own: a disk may hang."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from exporter.runs.history.panels import BARE, Panels, read
from exporter.runs.notice import Say, to_log

NAME = "panels.json"
"""It lies beside the settings."""

USUAL = Path(__file__).parents[2] / "generated" / NAME
"""Of a checkout; an image holds none, since the settings come from outside."""

LARGEST_FILE = 4 * 1024 * 1024

SECONDS = 2.0
"""Between two looks at the file."""

Mark = tuple[int, int, int] | None


class PanelFile:
    """What is drawn: ``panels`` are those of the last good file, which is read at once.

    ``errors`` counts the files that could not be used; each is logged once.
    """

    def __init__(self, path: Path, say: Say = to_log) -> None:
        self.path = path
        self.errors = 0
        self.panels: Panels = BARE
        self._say = say
        self._stop = Flag()
        self._seen: Mark | str = "never"
        self.look()

    def start(self) -> None:
        """Begin to look whether it is another one, in the background."""
        # A daemon: a disk that hangs must not keep the exporter from ending.
        Thread(target=self._run, name="panels", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def look(self) -> None:
        """Read the file if it is another one."""
        mark = self._mark()
        if mark != self._seen:
            self._seen = mark
            self._take(mark)

    def _run(self) -> None:
        while not self._stop.wait(SECONDS):
            self.look()

    def _mark(self) -> Mark:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _take(self, mark: Mark) -> None:
        if mark is None:
            self._lack()
            return
        try:
            self.panels = read(_content(self.path))
        except (OSError, ValueError, RecursionError) as problem:
            self.errors += 1
            reason = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else problem
            self._say(
                f"{self.path}: cannot be used: {reason}. The limits of before stay. "
                "Expected the panels that generate.py writes. Fix: run python generate.py."
            )

    def _lack(self) -> None:
        left = "curves are shown without limits" if self.panels is BARE else "the panels of before stay"
        self._say(f"{self.path} is not there: {left}. Fix: run python generate.py, which writes it.")


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"it is larger than {LARGEST_FILE // 1024**2} MiB")
    return content
