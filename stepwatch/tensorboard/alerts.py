"""The onsets of alerts about runs, as Prometheus recorded them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import NamedTuple

from exporter.alert_labels import ONSET_STEP
from exporter.runs.overview.models import Firing, RunId
from exporter.runs.overview.prometheus import Client, Span
from exporter.runs.remote.web import PollError

PAST_SECONDS = 14 * 86400.0
"""Longer, Prometheus keeps nothing by default (storage.retention)."""
MOST_POINTS = 5000
RECENT_SECONDS = 120.0
INTERVAL_SECONDS = 2.0
FINEST_SECONDS = 5.0


class Onset(NamedTuple):
    """An alert about a run: the step of its onset, and when that was seen, in seconds since the epoch."""

    run: str
    alert: str
    severity: str
    step: int
    at: float
    words: str


class Alerts:
    """Asks Prometheus in the background, again and again; ``onsets`` gives what is new.

    Attributes:
        problem: Why Prometheus does not answer; empty if it does.
    """

    def __init__(self, prometheus: str) -> None:
        self.problem = ""
        self._client = Client(prometheus)
        self._found: SimpleQueue[Onset] = SimpleQueue()
        self._stop = Event()
        self._since = time.time() - PAST_SECONDS

    def start(self) -> None:
        """Begin to ask."""
        Thread(target=self._run, name="alerts", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def onsets(self) -> Iterator[Onset]:
        """Yield what was found since the last call, some of it again."""
        while not self._found.empty():
            yield self._found.get()

    def ask(self) -> None:
        """Ask once for all since the last good answer."""
        now = time.time()
        try:
            span = Span(RunId(""), self._since, now)
            every = span.interval(MOST_POINTS)
            # However short an alert was, one point looks back over the time to the one before.
            labels, window = "run, alertname, severity", f"[{max(2 * FINEST_SECONDS, every):.0f}s]"
            promql = (
                f"max by ({labels}) (last_over_time({ONSET_STEP}{window}))"
                f' and max by ({labels}) (last_over_time(ALERTS{{alertstate="firing"}}{window}))'
            )
            found = self._client.series(promql, span, every)
            firing = self._client.firing()
        except PollError as problem:
            self.problem = str(problem)
            return
        self.problem, self._since = "", now - RECENT_SECONDS
        for series, points in found:
            for onset in _onsets(series, points, firing):
                self._found.put(onset)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.ask()
            self._stop.wait(INTERVAL_SECONDS)


def _onsets(
    labels: Mapping[str, str], points: Sequence[tuple[float, float]], firing: Mapping[RunId, Sequence[Firing]]
) -> Iterator[Onset]:
    run, alert, severity = (labels.get(name, "") for name in ("run", "alertname", "severity"))
    before = None
    for at, step in points:
        if step != before:
            now = next(
                (one for one in firing.get(RunId(run), ()) if (one.name, one.severity) == (alert, severity)),
                None,
            )
            yield Onset(run, alert, severity, int(step), at, _words(alert, severity, int(step), now))
        before = step


def _words(alert: str, severity: str, step: int, firing: Firing | None) -> str:
    """A text in Markdown. The description of an ended alert is no longer known."""
    head = f"**{alert}** ({severity}) from step {step}"
    if firing is None:
        return head
    rest = (firing.summary, firing.description, firing.action, firing.runbook)
    return "\n\n".join(filter(None, (head, *rest)))
