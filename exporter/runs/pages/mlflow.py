"""Runs of an MLflow tracking server, by as much of its REST API as following runs takes."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from exporter.runs.files import token_files
from exporter.runs.pages import web
from exporter.runs.pages.source import Target
from exporter.runs.pages.web import PollError
from exporter.runs.signals.record import Ended, Event, Record, is_step

MOST_RUNS = 200  # asked for at a time: each comes with all its parameters
ENDS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "failed"}
ASKED = {
    "experiment": ("experiments/get-by-name", "experiment_name", "use a name that the server's page lists"),
    "run": ("runs/get", "run_id", "copy the id from the run's page"),
}
"""How each is asked for, and the fix where the server has none."""
Entry = tuple[int, int, str, Any]
"""One value of a metric: its time in milliseconds since the epoch, step, key, and value as it is written."""


@dataclass(slots=True)
class Followed:
    """A run that is followed: of each metric what was listed last, its last page, and hashes of its entries.

    Metrics are logged one by one and stamped by the logger, so values are put together by their step, not by
    their order. A metric that is logged for a lower step than before shows a resume; one that is logged for
    the same step again is ignored.
    """

    name: str
    read: dict[str, tuple[str, str, set[int]]] = field(default_factory=dict)
    fresh: list[Entry] = field(default_factory=list)
    end: str | None = None
    steps: dict[str, int] = field(default_factory=dict)
    highest: int = -1

    def records(self) -> Iterator[Record]:
        """What was read since the last call, a record for each step; steps go back where a run resumed."""
        fresh, self.fresh = sorted(self.fresh, key=lambda entry: entry[:2]), []
        attempt: dict[int, Record] = {}
        for at, step, key, value in fresh:
            before = self.steps.get(key, -1)
            if not is_step(step) or step == before:
                continue
            if step < before:
                yield from self._pass_on(attempt)
                attempt, self.steps, self.highest = {}, {}, -1
            self.steps[key] = step
            # MLflow's databases keep the largest number in place of an infinite one
            huge = value in (sys.float_info.max, -sys.float_info.max)
            record = attempt.setdefault(step, Record(step, {}, at / 1000, run=self.name))
            record.values[key] = math.copysign(math.inf, value) if huge else value  # type: ignore[index]
        yield from self._pass_on(attempt)

    def _pass_on(self, attempt: Mapping[int, Record]) -> Iterator[Record]:
        """An attempt's records in order. One below a step that was passed on would look like a resume."""
        for step in sorted(attempt):
            if step >= self.highest:
                self.highest = step
                yield attempt[step]


class Mlflow(Target):
    """A tracking server that is polled for the runs of some experiments, and for single runs.

    A poll that finds nothing new costs two searches for all experiments together, and one request
    for each single run; else one more for each metric that has news, a whole history once in pages.
    An experiment or run that is missing is asked for at each poll, and hides no other.
    The runs are called ``<experiment>/<run name>``; a run without name, or of a name that another
    one has already, ``<experiment>/<run id>``. MLflow lists of each metric the value of its highest step:
    of a resumed run, the steps that are logged once more are seen when it comes to the first new one.
    ``since``: seconds that a run's last sign of life may be old when it is first seen.
    """

    source = "mlflow"
    has_history = True
    is_trainer = False

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
        super().__init__(url)
        self._url, self._token_file, self._timeout = url.rstrip("/"), token_file, timeout
        self._experiments, self._run_ids, self._since = experiments, run_ids, since
        self._names: dict[str, str] = {}  # of experiments by id
        self._owners: dict[str, str] = {}  # ids of runs by the name that they have here
        self._followed: dict[str, Followed] = {}
        self._events: list[Event] = []

    def read(self) -> list[Event]:
        """What was logged since, each run in its order, and which runs ended. Raises PollError."""
        earliest = int(1000 * (time.time() - self._since))
        try:
            listed = {str(run["info"]["run_id"]): run for run in self._listed(earliest)}
            started = {
                id_: int(run["info"].get("start_time", 0))
                for id_, run in listed.items()
                if id_ in self._followed or _active(run) > earliest
            }
            for id_ in sorted(started, key=lambda id_: (started[id_], id_)):
                self._follow(id_, listed[id_])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise PollError(
                f"{self.name} answers with JSON that is not MLflow's. "
                "Fix: give the address of an MLflow server of version 2 or later."
            ) from None
        self._followed = {id_: self._followed[id_] for id_ in started}
        events, self._events = self._events, []  # those of a poll that failed half-way as well
        return events

    def _listed(self, earliest: int) -> Iterator[Mapping[str, Any]]:
        """Runs of interest, some more than once."""
        runs, missing = list[Mapping[str, Any]](), list[str]()
        known = set(self._names.values())
        asked = [("experiment", name) for name in self._experiments if name not in known]
        for kind, each in (*asked, *(("run", id_) for id_ in self._run_ids)):
            method, key, fix = ASKED[kind]
            try:
                found = self._ask(method, {key: each})[kind]
            except PollError as problem:
                if problem.status != 404:
                    raise
                missing.append(f"{self.name} has no {kind} {each!r}. Fix: {fix}.")
                continue
            if kind == "run":
                runs.append(found)
            else:
                self._names[str(found["experiment_id"])] = each
        experiments = [id_ for id_, name in self._names.items() if name in self._experiments]
        if missing and not (experiments or runs):
            raise PollError(missing[0])
        self.lacking = tuple(missing)
        for condition in ("attributes.status = 'RUNNING'", f"attributes.end_time > {earliest}"):
            order = {"experiment_ids": experiments, "filter": condition, "max_results": MOST_RUNS}
            token: str | None = "" if experiments else None
            while token is not None:
                answer = self._ask("runs/search", posted={**order, "page_token": token})
                yield from answer.get("runs", ())
                token = _next_page(answer, token)
        yield from runs

    def _follow(self, id_: str, run: Mapping[str, Any]) -> None:
        """Read what was logged of a run since the last time."""
        followed = self._followed.get(id_)
        if followed is None:
            followed = self._followed[id_] = Followed(self._name(id_, run["info"]))
        for metric in run.get("data", {}).get("metrics", ()):
            key, listed = str(metric["key"]), repr(_entry(metric))
            seen, page, known = followed.read.get(key, ("", "", set[int]()))
            # MLflow's own measurements of the machine count steps of their own, every ten seconds
            if listed == seen or key.startswith("system/"):
                continue
            following: str | None = page
            while following is not None:
                asked = {"run_id": id_, "metric_key": key, "max_results": "500"}
                answer = self._ask("metrics/get-history", {**asked, "page_token": page} if page else asked)
                marked = {hash(repr(each)): each for each in map(_entry, answer.get("metrics", ()))}
                followed.fresh += [
                    (*entry[:2], key, entry[3]) for mark, entry in marked.items() if mark not in known
                ]
                following, known = _next_page(answer, page), set(marked)
                if following is not None:
                    page, known = following, set()
                followed.read[key] = seen, page, known  # the rest may fail
            followed.read[key] = listed, page, known
        self._events += followed.records()
        end = ENDS.get(str(run["info"].get("status", "")))
        if end and end != followed.end:
            self._events.append(Ended(end, run=followed.name))
        followed.end = end

    def _name(self, id_: str, info: Mapping[str, Any]) -> str:
        """A name that no other run has."""
        experiment = str(info["experiment_id"])
        if experiment not in self._names:
            answer = self._ask("experiments/get", {"experiment_id": experiment})
            self._names[experiment] = str(answer["experiment"]["name"])
        name = f"{self._names[experiment]}/{info.get('run_name') or id_}"
        return name if self._owners.setdefault(name, id_) == id_ else f"{self._names[experiment]}/{id_}"

    def _ask(
        self, method: str, asked: Mapping[str, str] | None = None, posted: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The answer to a request. Raises PollError."""
        url = f"{self._url}/api/2.0/mlflow/{method}" + (f"?{urlencode(asked)}" if asked else "")
        headers = {"Content-Type": "application/json"}
        try:
            if self._token_file:
                headers["Authorization"] = f"Bearer {token_files.read(Path(self._token_file))}"
            body = None if posted is None else json.dumps(posted).encode()
            document = json.loads(web.get(url, headers, self._timeout, body).body)
        except token_files.TokenFileError as problem:
            raise PollError(str(problem)) from None
        except PollError as refusal:
            if refusal.status in (401, 403):
                raise PollError(f"{refusal} Fix: put a valid token into the token file.") from None
            raise
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise PollError(f"{self.name} does not answer as MLflow does. Fix: give the server's address.")
        return document


def _entry(each: Mapping[str, Any]) -> Entry:
    return int(each["timestamp"]), int(each.get("step", 0)), str(each.get("key", "")), each["value"]


def _active(run: Mapping[str, Any]) -> int:
    """When something of a run is last known to have happened, in milliseconds since the epoch."""
    info, metrics = run["info"], run.get("data", {}).get("metrics", ())
    known = int(info.get("start_time", 0)), int(info.get("end_time", 0))
    return max(*known, *(int(each["timestamp"]) for each in metrics))


def _next_page(answer: Mapping[str, Any], page: str) -> str | None:
    """The token of the page after this one; a server that points back at it would never end."""
    following = str(answer.get("next_page_token") or "")
    return following if following not in ("", page) else None
