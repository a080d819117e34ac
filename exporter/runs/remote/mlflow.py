"""Runs of an MLflow tracking server, by as much of its REST API as following runs takes."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from exporter.runs.files import token_files
from exporter.runs.files.token_files import TokenFileError
from exporter.runs.remote import web
from exporter.runs.remote.web import PollError, RefusedError
from exporter.runs.signals.record import Ended, Event, Record, is_step
from exporter.secret_shapes import masked_url

_PAGE = 500  # Entries asked for at a time
_RUNS = 200  # runs asked for at a time: each comes with all its parameters


class MissingError(PollError):
    """The server answers, and has no such experiment or run."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as listed, in ms, ``ended`` 0 while it runs; ``latest``: time, step, text by metric."""

    id: str
    name: str
    experiment: str
    status: str
    started: int
    ended: int
    latest: Mapping[str, tuple[int, int, str]]

    @property
    def active(self) -> int:
        """When something of it is last known to have happened, in milliseconds since the epoch."""
        return max(self.started, self.ended, *(time for time, _, _ in self.latest.values()))


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a metric; ``time`` in milliseconds since the epoch. ``value`` as the server writes it."""

    time: int
    step: int
    key: str
    value: Any


class Tracking:
    """A server at ``url`` without ``/api``; its bearer token's file is read at each request."""

    def __init__(self, url: str, token_file: str | None, timeout: float) -> None:
        self.name = masked_url(url)
        self._url, self._token_file, self._timeout = url.rstrip("/"), token_file, timeout

    def experiment_id(self, name: str) -> str:
        """The id of an experiment. Raises MissingError and PollError."""
        try:
            answer = self._ask("experiments/get-by-name", {"experiment_name": name})
        except RefusedError as refusal:
            if refusal.status != 404:
                raise
            raise MissingError(
                f"{self.name} has no experiment {name!r}. Fix: use a name that the server's page lists."
            ) from None
        return str(answer["experiment"]["experiment_id"])

    def experiment_name(self, experiment: str) -> str:
        """The name of the experiment with an id."""
        return str(self._ask("experiments/get", {"experiment_id": experiment})["experiment"]["name"])

    def run(self, run_id: str) -> TrackedRun:
        """The run with an id. Raises MissingError and PollError."""
        try:
            return _run(self._ask("runs/get", {"run_id": run_id})["run"])
        except RefusedError as refusal:
            if refusal.status != 404:
                raise
            raise MissingError(
                f"{self.name} has no run {run_id!r}. Fix: copy the id from the run's page."
            ) from None

    def runs(self, experiments: Sequence[str], condition: str) -> Iterator[TrackedRun]:
        """Runs of experiments (ids) for which a condition in MLflow's filter language holds."""
        order = {"experiment_ids": experiments, "filter": condition, "max_results": _RUNS}
        token: str | None = ""
        while token is not None:
            answer = self._ask("runs/search", posted={**order, "page_token": token})
            yield from map(_run, answer.get("runs", ()))
            token = _next_page(answer, token)

    def history(self, run_id: str, key: str, page: str) -> tuple[list[Entry], str | None]:
        """A page of a metric's history in order of time, and the next page's token if there is one."""
        asked = {"run_id": run_id, "metric_key": key, "max_results": str(_PAGE)}
        answer = self._ask("metrics/get-history", {**asked, "page_token": page} if page else asked)
        entries = [
            Entry(int(each["timestamp"]), int(each.get("step", 0)), key, each["value"])
            for each in answer.get("metrics", ())
        ]
        return entries, _next_page(answer, page)

    def _ask(
        self, method: str, asked: Mapping[str, str] | None = None, posted: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        url = f"{self._url}/api/2.0/mlflow/{method}" + (f"?{urlencode(asked)}" if asked else "")
        body = None if posted is None else json.dumps(posted).encode()
        headers = {"Content-Type": "application/json"}
        if self._token_file:
            try:
                headers["Authorization"] = f"Bearer {token_files.read(Path(self._token_file))}"
            except TokenFileError as problem:
                raise PollError(str(problem)) from None
        try:
            answer = web.get(url, headers, self._timeout, body)
        except RefusedError as refusal:
            if refusal.status not in (401, 403):
                raise
            raise PollError(f"{refusal} Fix: put a valid token into the token file.") from None
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise PollError(f"{self.name} does not answer as MLflow does. Fix: give the server's address.")
        return document


def _next_page(answer: Mapping[str, Any], page: str) -> str | None:
    """The token of the page after this one; a server that points back at it would never end."""
    following = str(answer.get("next_page_token") or "")
    return following if following not in ("", page) else None


def _run(listed: Mapping[str, Any]) -> TrackedRun:
    info, data = listed["info"], listed.get("data", {})
    return TrackedRun(
        id=str(info["run_id"]),
        name=str(info.get("run_name", "")),
        experiment=str(info["experiment_id"]),
        status=str(info.get("status", "")),
        started=int(info.get("start_time", 0)),
        ended=int(info.get("end_time", 0)),
        latest={
            str(each["key"]): (int(each["timestamp"]), int(each.get("step", 0)), repr(each["value"]))
            for each in data.get("metrics", ())
        },
    )


_MACHINE = "system/"
"""MLflow's own measurements of the machine. They count steps of their own, every ten seconds."""


@dataclass(slots=True)
class _Cursor:
    """How far a metric was read: its last page, and which entries of that page are known."""

    page: str = ""
    known: set[int] = field(default_factory=set)
    latest: tuple[int, int, str] | None = None


@dataclass(slots=True)
class _Step:
    """What was logged for one step, and when that began, in seconds since the epoch."""

    time: float
    values: dict[str, Any] = field(default_factory=dict)


class History:
    """The history of a run; its records get the name ``run``.

    Metrics are logged one by one and stamped by the logger, so values are put together by their
    step, not by their order. A metric that is logged for a lower step than before shows a resume;
    one that is logged for the same step again is ignored.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._cursors: dict[str, _Cursor] = {}
        self._fresh: list[Entry] = []
        self._steps: dict[str, int] = {}
        self._highest = -1

    def fetch(self, tracking: Tracking, run: TrackedRun) -> None:
        """Read what was logged since the last time. Raises PollError."""
        for key, latest in run.latest.items():
            cursor = self._cursors.setdefault(key, _Cursor())
            if latest != cursor.latest and not key.startswith(_MACHINE):
                self._read(tracking, run.id, key, cursor)
                cursor.latest = latest

    def _read(self, tracking: Tracking, run_id: str, key: str, cursor: _Cursor) -> None:
        following: str | None = cursor.page
        while following is not None:
            entries, following = tracking.history(run_id, key, cursor.page)
            marks = [hash(repr(entry)) for entry in entries]
            known = zip(entries, marks, strict=True)
            self._fresh += [entry for entry, mark in known if mark not in cursor.known]
            cursor.known = set(marks)
            if following is not None:
                cursor.page, cursor.known = following, set()

    def records(self) -> list[Record]:
        """What was read since the last call, a record for each step; steps go back where a run resumed."""
        entries = sorted(self._fresh, key=attrgetter("time", "step"))
        self._fresh = []
        attempt: dict[int, _Step] = {}
        found: list[Record] = []
        for entry in entries:
            if not is_step(entry.step):
                continue
            before = self._steps.get(entry.key, -1)
            if entry.step < before:
                found += self._passed_on(attempt)
                attempt, self._steps, self._highest = {}, {}, -1
            if entry.step != before:
                self._steps[entry.key] = entry.step
                step = attempt.setdefault(entry.step, _Step(entry.time / 1000))
                step.values[entry.key] = _value(entry.value)
        return [*found, *self._passed_on(attempt)]

    def _passed_on(self, attempt: dict[int, _Step]) -> Iterator[Record]:
        """An attempt's records in order. One below a step that was passed on would look like a resume."""
        for step in sorted(attempt):
            if step >= self._highest:
                self._highest = step
                yield Record(step, attempt[step].values, attempt[step].time, run=self._run)


def _value(raw: Any) -> Any:
    """MLflow's databases keep the largest number in place of an infinite one."""
    return math.copysign(math.inf, raw) if raw in (sys.float_info.max, -sys.float_info.max) else raw


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

    ``since``: seconds that a run's last sign of life may be old when it is first seen.
    """

    source = "mlflow"
    has_history = True
    is_trainer = False
    reported: frozenset[str] = frozenset()

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
        """What was logged since, each run in its order, and which runs ended. Raises PollError."""
        try:
            listed = sorted(self._listed(), key=lambda run: (run.started, run.id))
            for run in listed:
                self._follow(run)
        except _SHAPE_FAULTS:
            raise PollError(
                f"{self.name} answers with JSON that is not MLflow's. "
                "Fix: give the address of an MLflow server of version 2 or later."
            ) from None
        self._followed = {run.id: self._followed[run.id] for run in listed}
        events, self._events = self._events, []  # those of a poll that failed half-way as well
        return events

    def _listed(self) -> list[TrackedRun]:
        """Runs of interest, each once."""
        earliest = int(1000 * (time.time() - self._since))
        runs = {run.id: run for run in self._found(earliest)}
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
