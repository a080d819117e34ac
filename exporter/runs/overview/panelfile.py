"""The file of panels, read again whenever it is replaced, by a thread of its own: a disk may hang."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from exporter.config_file import ConfigFile
from exporter.runs.overview.panels import BARE, Panels, read

logger = logging.getLogger(__name__)

NAME = "panels.json"
"""It lies beside the settings."""

USUAL = Path(__file__).parents[2] / "generated" / NAME
"""Of a checkout; an image holds none, since the settings come from outside."""

SECONDS = 2.0
"""Between two looks at the file."""


class PanelFile:
    """What is drawn: ``panels`` are those of the last good file, which is read at once.

    ``errors`` counts the files that could not be used; each is logged once.
    """

    def __init__(self, path: Path) -> None:
        self.errors = 0
        self.panels: Panels = BARE
        self._file = ConfigFile(str(path))
        self._stop = Flag()
        self._read()

    def start(self) -> None:
        """Begin to look whether it is another one, in the background."""
        # A daemon: a disk that hangs must not keep the exporter from ending.
        Thread(target=self._run, name="panels", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def look(self) -> None:
        """Read the file if it is another one."""
        if self._file.changed():
            self._read()

    def _run(self) -> None:
        while not self._stop.wait(SECONDS):
            self.look()

    def _read(self) -> None:
        try:
            self.panels = read(self._file)
        except ValueError as problem:
            self.errors += 1
            left = "Curves are shown without limits" if self.panels is BARE else "The panels of before stay"
            logger.warning("%s %s.", problem, left)
