"""Runs of an MLflow tracking server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from exporter.runs.remote.mlflow_history import History
from exporter.runs.remote.tracking import MissingError, TrackedRun, Tracking
from exporter.runs.remote.web import PollError
from exporter.runs.signals.record import Ended, Event

_ENDS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "failed"}
_SHAPE_FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)

T = TypeVar("T")


@dataclass(slots=True)
class _Followed:
    """A run that was seen before, and the end that was reported."""

    name: str
    history: History
    end: str | None = None


class Mlflow:
    """A tracking server that is polled for the runs of some experiments, and for single runs.

    A poll that finds nothing new costs two searches for all experiments together, and one request
    for each single run; else one more for each metric that has news, a whole history once in pages.
    An experiment or run that the server does not have (yet) is asked for at each poll, and hides no other.
    The runs are called ``<experiment>/<run name>``; a run without name, or of a name that another
    one has already, ``<experiment>/<run id>``.

    MLflow lists of each metric the value of its highest step: of a resumed run, the steps that are
    logged once more are seen when it comes to the first new one.

    Args:
        url: Of the server, without ``/api``.
        experiments: Names of experiments.
        run_ids: Ids of single runs.
        token_file: Holds a bearer token.
        since: Seconds that a run's last sign of life may be old when it is first seen.
        timeout: Seconds that an answer may take.
    """

    source = "mlflow"
    has_history = True
    is_trainer = False
    telling: frozenset[str] = frozenset()

    def __init__(
        self,
        url: str,
        experiments: Sequence[str] = (),
        run_ids: Sequence[str] = (),
        token_file: str | None = None,
        *,
        since: float = 86400,
        timeout: float = 10,
    ) -> None:
        self._tracking = Tracking(url, token_file, timeout)
        self.name = self._tracking.name
        self._experiments, self._run_ids, self._since = experiments, run_ids, since
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self.lacking: tuple[str, ...] = ()
        self._followed: dict[str, _Followed] = {}
        self._events: list[Event] = []

    def poll(self) -> list[Event]:
        """What was logged since the last call, each run in its own order, and which runs ended.

        Raises:
            PollError: the server cannot be asked, or has none of the experiments and runs.
        """
        try:
            listed = sorted(self._listed(), key=lambda run: (run.started, run.id))
            for run in listed:
                self._follow(run)
        except _SHAPE_FAULTS:
            raise PollError(
                f"{self.name} answers with JSON of another form than MLflow's. "
                "Fix: give the address of an MLflow server of version 2 or later."
            ) from None
        self._followed = {run.id: self._followed[run.id] for run in listed}
        events, self._events = self._events, []  # those of a poll that failed half-way as well
        return events

    def _listed(self) -> list[TrackedRun]:
        """Runs of interest, each once."""
        earliest = 1000 * (time.time() - self._since)
        runs = {run.id: run for run in self._found(int(earliest))}
        return [run for run in runs.values() if run.active > earliest or run.id in self._followed]

    def _found(self, earliest: int) -> Iterator[TrackedRun]:
        missing: list[MissingError] = []
        experiments = list(_there(self._id, self._experiments, missing))
        runs = list(_there(self._tracking.run, self._run_ids, missing))
        if missing and not (experiments or runs):
            raise missing[0]
        self.lacking = tuple(map(str, missing))
        if experiments:
            for condition in ("attributes.status = 'RUNNING'", f"attributes.end_time > {earliest}"):
                yield from self._tracking.runs(experiments, condition)
        yield from runs

    def _id(self, name: str) -> str:
        if name not in self._ids:
            self._ids[name] = self._tracking.experiment_id(name)
            self._names[self._ids[name]] = name
        return self._ids[name]

    def _follow(self, run: TrackedRun) -> None:
        followed = self._followed.get(run.id)
        if followed is None:
            name = self._name(run)
            followed = self._followed[run.id] = _Followed(name, History(name))
        followed.history.fetch(self._tracking, run)
        self._events += followed.history.records()
        end = _ENDS.get(run.status)
        if end and end != followed.end:
            self._events.append(Ended(end, run=followed.name))
        followed.end = end

    def _name(self, run: TrackedRun) -> str:
        """A name that no other run has, for as long as the run is followed."""
        if run.experiment not in self._names:
            self._names[run.experiment] = self._tracking.experiment_name(run.experiment)
        experiment = self._names[run.experiment]
        name = f"{experiment}/{run.name or run.id}"
        return name if self._owners.setdefault(name, run.id) == run.id else f"{experiment}/{run.id}"


def _there(ask: Callable[[str], T], names: Sequence[str], missing: list[MissingError]) -> Iterator[T]:
    """What the server has of these; what it does not have is added to ``missing``."""
    for name in names:
        try:
            yield ask(name)
        except MissingError as problem:  # noqa: PERF203  (one that is missing must not hide the others)
            missing.append(problem)
