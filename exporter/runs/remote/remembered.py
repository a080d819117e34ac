"""Runs that are polled, and what of them must outlive the exporter."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from exporter.runs.files.state_file import Saved, StateFolder
from exporter.runs.logs.run_limit import PolledRunSet, RunLimit
from exporter.runs.model.health import Health
from exporter.runs.model.run import Options


class Remembered:
    """A roster with the runs of before.

    Args:
        place: Stands for them in the state folder.
        source: What they are read from.
        options: Of each run.
        states: The state folder.
        limit: On the runs of all logs, pages and servers.
        anew: All of their history is served again, so that only who was watched need be known.
    """

    def __init__(
        self,
        place: Path,
        source: str,
        options: Options,
        states: StateFolder,
        limit: RunLimit,
        *,
        anew: bool,
    ) -> None:
        self._place, self._states = place, states
        saved = states.load(place)
        before = saved.latest if saved and not anew else None
        watched, marks = (saved.watched, saved.marks) if saved else ((), None)
        self.roster = PolledRunSet(limit, source, "", options, before, watched, marks=marks)
        self.roster.recall()
        self._saved = self._version()

    def save(self, health: Health, lock: Lock) -> None:
        """Keep what the next start could not ask for, if it changed since the last time."""
        roster = self.roster
        with lock:
            version = self._version()
            if version == self._saved:
                return
            saved = Saved(None, roster.kept(), "", 0, roster.watched(), marks=roster.marks())
        try:
            self._states.save(self._place, saved)
        except OSError:
            health.state_errors += 1
            return
        self._saved = version

    def _version(self) -> tuple[object, ...]:
        return self.roster.version(), *self.roster.watched()
