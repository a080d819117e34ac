"""Runs of an MLflow tracking server, by as much of its REST API as following runs takes."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from exporter.runs.files import token_files
from exporter.runs.files.token_files import TokenFileError
from exporter.runs.pages import web
from exporter.runs.pages.web import PollError, RefusedError
from exporter.runs.signals.record import Ended, Event, Record, is_step
from exporter.secret_shapes import masked_url

MOST_ENTRIES = 500  # of a metric's history asked for at a time
MOST_RUNS = 200  # runs asked for at a time: each comes with all its parameters
MACHINE = "system/"
"""MLflow's own measurements of the machine. They count steps of their own, every ten seconds."""
ENDS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "failed"}
T = TypeVar("T")


class MissingError(PollError):
    """The server answers, and has no such experiment or run."""


class Entry(NamedTuple):
    """One value of a metric; ``time`` in milliseconds since the epoch. ``value`` as the server writes it."""

    time: int
    step: int
    key: str
    value: Any


@dataclass(slots=True)
class Metric:
    """How far a metric was read: its last page, which entries of it are known, and what was listed then."""

    page: str = ""
    known: set[int] = field(default_factory=set)
    listed: Entry | None = None


@dataclass(slots=True)
class Followed:
    """A run that is followed, and the ``end`` that was reported.

    Metrics are logged one by one and stamped by the logger, so values are put together by their step, not by
    their order. A metric that is logged for a lower step than before shows a resume; one that is logged for
    the same step again is ignored.
    """

    name: str
    metrics: dict[str, Metric] = field(default_factory=dict)
    fresh: list[Entry] = field(default_factory=list)
    end: str | None = None
    steps: dict[str, int] = field(default_factory=dict)
    highest: int = -1

    def records(self) -> list[Record]:
        """What was read since the last call, a record for each step; steps go back where a run resumed."""
        attempt: dict[int, Record] = {}
        found: list[Record] = []
        for entry in sorted(self.fresh, key=lambda entry: entry[:2]):
            before = self.steps.get(entry.key, -1)
            if not is_step(entry.step) or entry.step == before:
                continue
            if entry.step < before:
                found += self._passed_on(attempt)
                attempt, self.steps, self.highest = {}, {}, -1
            self.steps[entry.key] = entry.step
            record = attempt.setdefault(entry.step, Record(entry.step, {}, entry.time / 1000, run=self.name))
            # MLflow's databases keep the largest number in place of an infinite one
            huge = entry.value in (sys.float_info.max, -sys.float_info.max)
            value = math.copysign(math.inf, entry.value) if huge else entry.value
            record.values[entry.key] = value  # type: ignore[index]
        self.fresh = []
        return [*found, *self._passed_on(attempt)]

    def _passed_on(self, attempt: Mapping[int, Record]) -> Iterator[Record]:
        """An attempt's records in order. One below a step that was passed on would look like a resume."""
        for step in sorted(attempt):
            if step >= self.highest:
                self.highest = step
                yield attempt[step]


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
        self.name, self.lacking = masked_url(url), tuple[str, ...]()
        self._url, self._token_file, self._timeout = url.rstrip("/"), token_file, timeout
        self._experiments, self._run_ids, self._since = experiments, run_ids, since
        self._ids: dict[str, str] = {}  # of experiments by name
        self._names: dict[str, str] = {}  # of experiments by id
        self._owners: dict[str, str] = {}  # ids of runs by the name that they have here
        self._followed: dict[str, Followed] = {}
        self._events: list[Event] = []

    def poll(self) -> list[Event]:
        """What was logged since, each run in its order, and which runs ended. Raises PollError."""
        earliest = int(1000 * (time.time() - self._since))
        try:
            listed = {str(run["info"]["run_id"]): run for run in self._listed(earliest)}
            started = {id_: int(run["info"].get("start_time", 0)) for id_, run in listed.items()}
            runs = [
                (id_, listed[id_])
                for id_ in sorted(listed, key=lambda id_: (started[id_], id_))
                if id_ in self._followed or _active(listed[id_]) > earliest
            ]
            for id_, run in runs:
                self._follow(id_, run)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise PollError(
                f"{self.name} answers with JSON that is not MLflow's. "
                "Fix: give the address of an MLflow server of version 2 or later."
            ) from None
        self._followed = {id_: self._followed[id_] for id_, _ in runs}
        events, self._events = self._events, []  # those of a poll that failed half-way as well
        return events

    def _listed(self, earliest: int) -> Iterator[Mapping[str, Any]]:
        """Runs of interest, some more than once."""
        missing: list[MissingError] = []
        experiments = list(_there(self._experiment, self._experiments, missing))
        runs = list(_there(self._run, self._run_ids, missing))
        if missing and not (experiments or runs):
            raise missing[0]
        self.lacking = tuple(map(str, missing))
        for condition in ("attributes.status = 'RUNNING'", f"attributes.end_time > {earliest}"):
            order = {"experiment_ids": experiments, "filter": condition, "max_results": MOST_RUNS}
            token: str | None = "" if experiments else None
            while token is not None:
                answer = self._ask("runs/search", posted={**order, "page_token": token})
                yield from answer.get("runs", ())
                token = _next_page(answer, token)
        yield from runs

    def _experiment(self, name: str) -> str:
        """The id of an experiment."""
        if name not in self._ids:
            missing = f"{self.name} has no experiment {name!r}. Fix: use a name that the server's page lists."
            answer = self._ask("experiments/get-by-name", {"experiment_name": name}, missing=missing)
            self._ids[name] = str(answer["experiment"]["experiment_id"])
            self._names[self._ids[name]] = name
        return self._ids[name]

    def _run(self, id_: str) -> Mapping[str, Any]:
        missing = f"{self.name} has no run {id_!r}. Fix: copy the id from the run's page."
        run: Mapping[str, Any] = self._ask("runs/get", {"run_id": id_}, missing=missing)["run"]
        return run

    def _follow(self, id_: str, run: Mapping[str, Any]) -> None:
        """Read what was logged of a run since the last time."""
        followed = self._followed.get(id_)
        if followed is None:
            followed = self._followed[id_] = Followed(self._name(id_, run["info"]))
        for listed in map(_entry, run.get("data", {}).get("metrics", ())):
            metric = followed.metrics.setdefault(listed.key, Metric())
            if repr(listed) != repr(metric.listed) and not listed.key.startswith(MACHINE):
                following: str | None = metric.page
                while following is not None:
                    entries, following = self._history(id_, listed.key, metric.page)
                    marks = [hash(repr(entry)) for entry in entries]
                    known = zip(entries, marks, strict=True)
                    followed.fresh += [entry for entry, mark in known if mark not in metric.known]
                    metric.known = set(marks)
                    if following is not None:
                        metric.page, metric.known = following, set()
                metric.listed = listed
        self._events += followed.records()
        end = ENDS.get(str(run["info"].get("status", "")))
        if end and end != followed.end:
            self._events.append(Ended(end, run=followed.name))
        followed.end = end

    def _name(self, id_: str, info: Mapping[str, Any]) -> str:
        """A name that no other run has, for as long as the run is followed."""
        experiment = str(info["experiment_id"])
        if experiment not in self._names:
            answer = self._ask("experiments/get", {"experiment_id": experiment})
            self._names[experiment] = str(answer["experiment"]["name"])
        name = f"{self._names[experiment]}/{info.get('run_name') or id_}"
        return name if self._owners.setdefault(name, id_) == id_ else f"{self._names[experiment]}/{id_}"

    def _history(self, id_: str, key: str, page: str) -> tuple[list[Entry], str | None]:
        """A page of a metric's history in order of time, and the next page's token if there is one."""
        asked = {"run_id": id_, "metric_key": key, "max_results": str(MOST_ENTRIES)}
        answer = self._ask("metrics/get-history", {**asked, "page_token": page} if page else asked)
        entries = [_entry({**each, "key": key}) for each in answer.get("metrics", ())]
        return entries, _next_page(answer, page)

    def _ask(
        self,
        method: str,
        asked: Mapping[str, str] | None = None,
        posted: Mapping[str, Any] | None = None,
        missing: str = "",
    ) -> dict[str, Any]:
        """The answer to a request. Raises PollError, and with the text of ``missing`` MissingError."""
        url = f"{self._url}/api/2.0/mlflow/{method}" + (f"?{urlencode(asked)}" if asked else "")
        headers = {"Content-Type": "application/json"}
        try:
            if self._token_file:
                headers["Authorization"] = f"Bearer {token_files.read(Path(self._token_file))}"
            body = None if posted is None else json.dumps(posted).encode()
            document = json.loads(web.get(url, headers, self._timeout, body).body)
        except TokenFileError as problem:
            raise PollError(str(problem)) from None
        except RefusedError as refusal:
            if refusal.status == 404 and missing:
                raise MissingError(missing) from None
            if refusal.status not in (401, 403):
                raise
            raise PollError(f"{refusal} Fix: put a valid token into the token file.") from None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise PollError(f"{self.name} does not answer as MLflow does. Fix: give the server's address.")
        return document


def _entry(each: Mapping[str, Any]) -> Entry:
    return Entry(int(each["timestamp"]), int(each.get("step", 0)), str(each["key"]), each["value"])


def _active(run: Mapping[str, Any]) -> int:
    """When something of a run is last known to have happened, in milliseconds since the epoch."""
    info, metrics = run["info"], run.get("data", {}).get("metrics", ())
    known = int(info.get("start_time", 0)), int(info.get("end_time", 0))
    return max(*known, *(int(each["timestamp"]) for each in metrics))


def _next_page(answer: Mapping[str, Any], page: str) -> str | None:
    """The token of the page after this one; a server that points back at it would never end."""
    following = str(answer.get("next_page_token") or "")
    return following if following not in ("", page) else None


def _there(ask: Callable[[str], T], names: Sequence[str], missing: list[MissingError]) -> Iterator[T]:
    """What the server has of these; what it does not have is added to ``missing``."""
    for name in names:
        try:
            yield ask(name)
        except MissingError as problem:  # noqa: PERF203  (one that is missing must not hide the others)
            missing.append(problem)
