"""The runs that one log, page or server reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from exporter.runs.files.state_file import RunSnapshots
from exporter.runs.model.marks import Marks
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Event

RunSets = Callable[..., "RunSet"]
"""Makes the run set of a log once its format is known, with the arguments of ``RunSet``."""

MOST = 200
"""Runs of one log; a table whose columns are not runs after all fills no memory."""


class RunSet:
    """Hands each event to its run; a run begins with the first that names it.

    ``before`` is what runs held before this log's content began, ``watched`` the runs that logged
    while they were watched before the last restart, ``marks`` the operator's. ``refused`` counts
    events of runs beyond ``MOST``. ``goes_on``: what comes first belongs to the attempt of what was
    held before.
    """

    goes_on = False

    def __init__(
        self,
        source: str,
        framework: str,
        options: Options,
        before: RunSnapshots | None = None,
        watched: Iterable[str] = (),
        *,
        marks: Mapping[str, list[list[Any]]] | None = None,
    ) -> None:
        self.runs: dict[str, Run] = {}
        self.refused = 0
        self._source, self._framework, self._options = source, framework, options
        self._before = before or {}
        self._watched = frozenset(watched)
        self._marks = marks or {}

    def take(self, event: Event, clock: Clock) -> None:
        """Take one thing that was logged."""
        run = self.runs.get(event.run)
        if run is None:
            if self.is_full:
                self.refused += 1
                return
            run = self._begin(event.run)
        run.take(event, clock)

    @property
    def is_full(self) -> bool:
        """Whether there are as many runs as one log may have."""
        return len(self.runs) >= MOST

    def recall(self) -> None:
        """Have the runs of before at once, whether or not anything is logged of them again."""
        for name in self._before.keys() - self.runs.keys():
            self._begin(name)

    def _begin(self, name: str) -> Run:
        run = self.runs[name] = Run(self._source, self._framework, self._options)
        run.watched = name in self._watched
        run.marks = Marks(self._marks.get(name, ()))
        if name in self._before:
            run.restore(self._before[name])
            run.progress.emptied = not self.goes_on
        return run

    def snapshot(self) -> RunSnapshots:
        """What a restart could not rebuild from an emptied log."""
        return {name: run.snapshot() for name, run in self.runs.items()}

    def watched(self) -> list[str]:
        """The runs that logged while the exporter was watching."""
        return [name for name, run in self.runs.items() if run.watched]

    def marks(self) -> dict[str, list[list[Any]]]:
        """The marks of each run that has any."""
        return {name: run.marks.snapshot() for name, run in self.runs.items() if run.marks.all}

    def emptied(self) -> None:
        """The log was emptied: what comes next is another attempt's."""
        for run in self.runs.values():
            run.progress.emptied = True

    def version(self) -> int:
        """Rises with everything that was logged."""
        return sum(run.version for run in self.runs.values())
