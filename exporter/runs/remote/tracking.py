"""MLflow's REST API, as much of it as following runs takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from exporter.runs.files import token_files
from exporter.runs.files.token_files import TokenFileError
from exporter.runs.remote import web
from exporter.runs.remote.web import PollError, RefusedError
from exporter.secret_shapes import masked_url

_PAGE = 500
"""Entries asked for at a time."""
_RUNS = 200
"""Runs asked for at a time: each comes with all its parameters."""


class MissingError(PollError):
    """The server answers, and has no such experiment or run."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as the server lists it.

    ``latest`` maps each metric to the time, the step and the text of what was logged last.
    ``started`` and ``ended`` are in milliseconds since the epoch, ``ended`` is 0 while it runs.
    """

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
    """A tracking server.

    Args:
        url: Of the server, without ``/api``.
        token_file: Holds a bearer token; read again at each request.
        timeout: Seconds that an answer may take.
    """

    def __init__(self, url: str, token_file: str | None, timeout: float) -> None:
        self.name = masked_url(url)
        self._url, self._token_file, self._timeout = url.rstrip("/"), token_file, timeout

    def experiment_id(self, name: str) -> str:
        """The id of an experiment.

        Raises:
            MissingError: the server has no such experiment.
            PollError: it cannot be asked.
        """
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
        """The run with an id.

        Raises:
            MissingError: the server has no such run.
            PollError: it cannot be asked.
        """
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
