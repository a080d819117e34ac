"""Whether Prometheus stores, evaluates and notifies, and whether Alertmanager answers.

On a full disk, most of Prometheus' own metrics still look healthy: it is ready, its targets are up, its
rules have just been evaluated. Two counters show the fault: appended samples stop rising, and failed writes
to its log rise.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from exporter.engine_client import Client, UnreachableError
from exporter.installation import adapt
from exporter.translatable import Text
from exporter.watchdog.finding import ALERTMANAGER, Finding, Timer

DOWN_SECONDS = 30.0
"""A restart takes a few seconds."""
START_SECONDS = 120.0
"""Prometheus reads its log again before it is ready; that of months takes minutes."""
STILL_SECONDS = 30.0
"""The least time without progress that counts."""
DROPPED_SECONDS = 90.0
"""Prometheus sends a firing alert again every 45 s."""
SEND_SECONDS = 10.0
"""Prometheus gives up a request to Alertmanager after that long, and only then counts what it dropped."""
SETTLE_SECONDS = 60.0
"""Prometheus knows no Alertmanager for some seconds after it loaded its settings; it sends again later."""

PROMETHEUS = "prometheus"
_STATUS = adapt("`make status`")
_STORES_NOTHING = Text("Prometheus stores no samples")


class Supervisor:
    """The supervisord of a native stack, by the path of its socket; ``None`` where there is none.

    A full disk ends some versions of Prometheus (2.42 by SIGBUS), and none starts on it; supervisord waits
    longer before each try and gives up. So parts that died are started as soon as there is room again.
    """

    def __init__(self, path: str | None) -> None:
        self._client = Client(path) if path else None

    def start(self, part: str) -> bool:
        """Start a part now that waits for its next try or was given up. Return whether it started."""
        try:
            if not re.search(">(BACKOFF|FATAL|EXITED)<", self._call("getProcessInfo", part)):
                return False
            # Without this, one that waits for its next try counts as started.
            self._call("stopProcess", part)
            return "<fault>" not in self._call("startProcess", part, "<boolean>0</boolean>")
        except UnreachableError:
            return False

    def _call(self, method: str, part: str, *more: str) -> str:
        """Call a method by XML-RPC; ``part`` is the name of a part, which needs no escape."""
        if self._client is None:
            return ""
        values = (f"<string>{part}</string>", *more)
        params = "".join(f"<param><value>{value}</value></param>" for value in values)
        name = f"<methodName>supervisor.{method}</methodName>"
        call = f"<methodCall>{name}<params>{params}</params></methodCall>"
        return re.sub(r"\s+", "", self._client.post("/RPC2", "text/xml", call).body)


class Alertmanager:
    """Takes alerts; ``answers_since`` (Unix seconds) each look was answered; 0: none is."""

    def __init__(self, client: Client) -> None:
        self.answers_since = 0.0
        self._client = client
        self._down = Timer()
        self._refusal = ""

    def look(self) -> Iterator[Finding]:
        """Yield its faults."""
        problem = ""
        try:
            started = _sum(_metrics(self._client), "process_start_time_seconds") or 0.0
            self.answers_since = max(self.answers_since or time.time(), started)
        except UnreachableError as fault:
            problem, self.answers_since = fault.args[0], 0.0
        if self._down.lasts(problem) >= DOWN_SECONDS:
            text = Text(
                "{problem}, for {seconds} s or more: no notification is sent. First: run {status}, then"
                " read Alertmanager's log.",
                problem=problem,
                seconds=f"{DOWN_SECONDS:.0f}",
                status=_STATUS,
            )
            summary = Text("Alertmanager does not answer")
            yield Finding("alertmanager_down", ALERTMANAGER, summary, text, (ALERTMANAGER,))
        elif self._refusal:
            text = Text("{refusal}. First: read Alertmanager's log.", refusal=self._refusal)
            summary = Text("Alertmanager refuses the watchdog's alerts")
            yield Finding("alertmanager_refuses", ALERTMANAGER, summary, text, (ALERTMANAGER,))

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        """Send it alerts. Return whether it accepted them."""
        try:
            reply = self._client.post("/api/v2/alerts", "application/json", json.dumps(alerts))
        except UnreachableError:
            return False
        self._refusal = "" if reply.status == 200 else f"{reply.status} {reply.body.strip()[:200]}"
        return reply.status == 200


class Prometheus:
    """Stores and evaluates; ``scrapes`` and ``rules`` are seconds between two of the most frequent."""

    def __init__(self, client: Client, scrapes: float, rules: float) -> None:
        self._client = client
        self._down, self._starting = Timer(), Timer()
        self._stored = Counter("prometheus_tsdb_head_samples_appended_total", scrapes)
        self._evaluated = Counter("prometheus_rule_evaluations_total", rules)
        self._failed_writes = Counter("prometheus_tsdb_wal_writes_failed_total")
        self._dropped = Counter("prometheus_notifications_dropped_total")
        self._asked = 0.0
        self._dropped_until = 0.0

    def look(self, alertmanager_answers_since: float) -> Iterator[Finding]:
        """Yield its faults; the Unix time is 0 while Alertmanager does not answer."""
        page, problem, starting = "", "", False
        try:
            page = _metrics(self._client)
            starting = self._client.get("/-/ready").status == 503
        except UnreachableError as fault:
            problem = fault.args[0]
        healthy = not (problem or starting)
        down, waiting = self._down.lasts(problem), self._starting.lasts(starting)
        for counter in (self._stored, self._evaluated, self._failed_writes, self._dropped):
            counter.update(page if healthy else None)
        if down >= DOWN_SECONDS:
            text = Text("{problem}, for {seconds} s", problem=problem, seconds=f"{down:.0f}")
            yield _broken("prometheus_down", Text("Prometheus does not answer"), text)
        elif waiting >= START_SECONDS:
            text = Text(
                "It has been starting for {seconds} s: it replays its write-ahead log",
                seconds=f"{waiting:.0f}",
            )
            yield _broken("prometheus_starting", Text("Prometheus is still starting"), text)
        elif healthy:
            yield from self._judged(page, alertmanager_answers_since)

    def _judged(self, page: str, alertmanager_answers_since: float) -> Iterator[Finding]:
        before, self._asked = self._asked, time.time()
        if still := self._stored.still:
            text = Text("No sample was stored for {seconds} s", seconds=f"{still:.0f}")
            yield _broken("prometheus_not_storing", _STORES_NOTHING, text)
        elif self._failed_writes.rises >= 2:
            text = Text("Writes to its write-ahead log fail")
            yield _broken("prometheus_not_storing", _STORES_NOTHING, text)
        if seconds := self._evaluated.still:
            text = Text("No rule was evaluated for {seconds} s", seconds=f"{seconds:.0f}")
            yield _broken("prometheus_not_judging", Text("Prometheus evaluates no rules"), text)
        loaded = _sum(page, "prometheus_config_last_reload_success_timestamp_seconds") or 0.0
        # Alerts whose sending began while Alertmanager was down do not show that the connection is broken.
        reachable = 0 < alertmanager_answers_since < before - SEND_SECONDS
        if self._dropped.rises and reachable and self._asked - loaded > SETTLE_SECONDS:
            self._dropped_until = time.monotonic() + DROPPED_SECONDS
        if time.monotonic() < self._dropped_until:
            text = Text(
                "Prometheus drops alerts, although Alertmanager answers the watchdog: no alert about a run"
                " arrives. First: read Prometheus' log; check the network between the two."
            )
            summary = Text("Prometheus cannot reach Alertmanager")
            yield Finding("notifications_dropped", PROMETHEUS, summary, text, (PROMETHEUS,))


class Counter:
    """A counter of Prometheus: looks in a row in which it rises, seconds for which it is ``still``."""

    def __init__(self, metric: str, interval: float = 0.0) -> None:
        self.rises = 0
        self.still = 0.0
        self._metric, self._patience = metric, max(STILL_SECONDS, 3 * interval)
        self._last: float | None = None
        self._since = 0.0

    def update(self, page: str | None) -> None:
        """Read its value from a page of metrics; without a page, start over."""
        value = None if page is None else _sum(page, self._metric)
        now = time.monotonic()
        risen = value is not None and self._last is not None and value > self._last
        self.rises = self.rises + 1 if risen else 0
        if value is None or value != self._last:
            self._last, self._since = value, now
        seconds = now - self._since
        self.still = seconds if seconds >= self._patience else 0.0


def _broken(fault: str, summary: Text, text: Text) -> Finding:
    description = Text(
        "{text}: no run is monitored. First: run {status}, then read Prometheus' log.",
        text=text,
        status=_STATUS,
    )
    return Finding(fault, PROMETHEUS, summary, description, (PROMETHEUS,))


def _metrics(client: Client) -> str:
    reply = client.get("/metrics")
    if reply.status != 200:
        raise UnreachableError(Text("/metrics answers {status}", status=reply.status))
    return reply.body


def _sum(page: str, metric: str) -> float | None:
    """Return the sum of a metric's samples; ``None`` if the page has none."""
    values = re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    return sum(map(float, values)) if values else None
