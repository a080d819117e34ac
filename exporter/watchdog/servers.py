"""Whether Prometheus stores, judges and notifies, and whether Alertmanager answers.

On a full disk most of what Prometheus says of itself still looks well: it is ready, its targets are up, its
rules have just been evaluated. What tells are two counters: the samples that it appended stand still, and the
writes to its log that failed rise.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from exporter.installation import adapt
from exporter.watchdog.client import Client, UnreachableError
from exporter.watchdog.finding import ALERTMANAGER, Finding, Timer

# Parts that died on a full disk are started as soon as there is room again.
#
# supervisord waits a second longer before each try to start a part, and gives up after the hundredth. A full
# disk ends some versions of Prometheus (2.42 by SIGBUS), and none starts on it.
WAITING = ("BACKOFF", "FATAL", "EXITED")
"""States of a part that should run and does not."""


class Supervisor:
    """The supervisord of a native stack, by the path of its socket; ``None`` where there is none."""

    def __init__(self, path: str | None) -> None:
        self._client = Client(path) if path else None

    def start(self, part: str) -> bool:
        """Start a part at once that waits for its next try or was given up. Returns whether it did."""
        if self._client is None:
            return False
        try:
            if not any(f">{state}<" in _call(self._client, "getProcessInfo", part) for state in WAITING):
                return False
            # Without this, one that waits for its next try counts as started.
            _call(self._client, "stopProcess", part)
            return "<fault>" not in _call(self._client, "startProcess", part, "<boolean>0</boolean>")
        except UnreachableError:
            return False


def _call(client: Client, method: str, part: str, *more: str) -> str:
    """Call a method by XML-RPC; ``part`` is the name of a part, which needs no escape."""
    values = "".join(
        f"<param><value>{value}</value></param>" for value in (f"<string>{part}</string>", *more)
    )
    call = f"<methodCall><methodName>supervisor.{method}</methodName><params>{values}</params></methodCall>"
    return re.sub(r"\s+", "", client.post("/RPC2", "text/xml", call).body)


DOWN_SECONDS = 30.0
"""A restart takes a few seconds."""
START_SECONDS = 120.0
"""Prometheus reads its log again before it is ready; that of months takes minutes."""
STILL_SECONDS = 30.0
"""The least time without progress that counts."""
DROPPED_SECONDS = 90.0
"""Prometheus sends an alert that goes on firing every 45 s."""
SEND_SECONDS = 10.0
"""Prometheus gives up a request to Alertmanager after that long, and only then counts what it dropped."""
SETTLE_SECONDS = 60.0
"""Prometheus knows no Alertmanager for some seconds after it loaded its settings; it sends again later."""

_STATUS = adapt("`make status`")


class Alertmanager:
    """Takes alerts, unless it is down.

    ``answers_since`` is the time (Unix seconds) since which its present process has answered each look; 0
    while it does not answer.
    """

    def __init__(self, client: Client) -> None:
        self.answers_since = 0.0
        self._client = client
        self._down = Timer()
        self._refusal = ""

    def look(self) -> Iterator[Finding]:
        """What is wrong with it."""
        problem = ""
        try:
            page = _page(self._client, "/metrics")
            started = _sum(page, "process_start_time_seconds") or 0.0
            self.answers_since = max(self.answers_since or time.time(), started)
        except UnreachableError as fault:
            problem, self.answers_since = str(fault), 0.0
        if self._down.lasts(problem) >= DOWN_SECONDS:
            yield Finding(
                "alertmanager_down",
                ALERTMANAGER,
                "Alertmanager does not answer",
                f"{problem}, for {DOWN_SECONDS:.0f} s or more: no notification is sent. "
                f"First: {_STATUS}, then the log of Alertmanager.",
                ("alertmanager",),
            )
        elif self._refusal:
            yield Finding(
                "alertmanager_refuses",
                ALERTMANAGER,
                "Alertmanager refuses the watchdog's alerts",
                f"{self._refusal}. First: the log of Alertmanager.",
                ("alertmanager",),
            )

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        """Give it alerts. Returns whether it took them."""
        try:
            reply = self._client.post("/api/v2/alerts", "application/json", json.dumps(alerts))
        except UnreachableError:
            return False
        self._refusal = "" if reply.status == 200 else f"{reply.status} {reply.body.strip()[:200]}"
        return reply.status == 200


class Prometheus:
    """Stores and judges, unless something is wrong.

    Args:
        client: Asks it.
        scrapes: Seconds between two scrapes of the target that it scrapes most often.
        rules: Seconds between two evaluations of the group that it evaluates most often.
    """

    def __init__(self, client: Client, scrapes: float, rules: float) -> None:
        self._client = client
        self._down, self._starting = Timer(), Timer()
        self._stored = Progress("prometheus_tsdb_head_samples_appended_total", scrapes)
        self._judged = Progress("prometheus_rule_evaluations_total", rules)
        self._failed_writes = Rise("prometheus_tsdb_wal_writes_failed_total")
        self._dropped = Rise("prometheus_notifications_dropped_total")
        self._asked = 0.0
        self._dropped_until = 0.0

    def look(self, alertmanager_answers_since: float) -> Iterator[Finding]:
        """What is wrong with it; the argument (Unix seconds) is 0 while Alertmanager does not answer."""
        page, problem, starting = "", "", False
        try:
            page = _page(self._client, "/metrics")
            starting = self._client.get("/-/ready").status == 503
        except UnreachableError as fault:
            problem = str(fault)
        down, waiting = self._down.lasts(problem), self._starting.lasts(starting)
        if down >= DOWN_SECONDS:
            yield _of_prometheus(
                "prometheus_down", "Prometheus does not answer", f"{problem}, for {down:.0f} s"
            )
        elif waiting >= START_SECONDS:
            text = f"it has been starting for {waiting:.0f} s: it reads its log of samples again"
            yield _of_prometheus("prometheus_starting", "Prometheus is still starting", text)
        if problem or starting:
            self._forget()
        else:
            yield from self._judge(page, alertmanager_answers_since)

    def _forget(self) -> None:
        for counter in (self._stored, self._judged, self._failed_writes, self._dropped):
            counter.forget()

    def _judge(self, page: str, alertmanager_answers_since: float) -> Iterator[Finding]:
        before, self._asked = self._asked, time.time()
        failed, still = self._failed_writes.rises(page), self._stored.still(page)
        if still or failed >= 2:
            text = f"no sample was stored for {still:.0f} s" if still else "writes to its log of samples fail"
            yield _of_prometheus("prometheus_not_storing", "Prometheus stores no samples", text)
        if seconds := self._judged.still(page):
            text = f"no rule was evaluated for {seconds:.0f} s"
            yield _of_prometheus("prometheus_not_judging", "Prometheus evaluates no rules", text)
        dropped = self._dropped.rises(page)
        loaded = _sum(page, "prometheus_config_last_reload_success_timestamp_seconds") or 0.0
        # Alerts that it began to send while Alertmanager was away do not show that the way is broken.
        reachable = 0 < alertmanager_answers_since < before - SEND_SECONDS
        if dropped and reachable and self._asked - loaded > SETTLE_SECONDS:
            self._dropped_until = time.monotonic() + DROPPED_SECONDS
        if time.monotonic() < self._dropped_until:
            yield Finding(
                "notifications_dropped",
                "prometheus",
                "Prometheus does not reach Alertmanager",
                "Prometheus drops its alerts, though Alertmanager answers the watchdog: no alert about a run "
                "arrives. First: the log of Prometheus, and the network between the two.",
                ("prometheus",),
            )


def _of_prometheus(fault: str, summary: str, text: str) -> Finding:
    description = (
        f"{text[:1].upper()}{text[1:]}: no run is watched. First: {_STATUS}, then the log of Prometheus."
    )
    return Finding(fault, "prometheus", summary, description, ("prometheus",))


class Progress:
    """A counter that must rise, at least once in ``interval`` seconds."""

    def __init__(self, metric: str, interval: float) -> None:
        self._metric, self._patience = metric, max(STILL_SECONDS, 3 * interval)
        self._last: float | None = None
        self._since = 0.0

    def still(self, page: str) -> float:
        """Returns for how many seconds it has stood still, 0 as long as that may be."""
        value, now = _sum(page, self._metric), time.monotonic()
        if value is None or value != self._last:
            self._last, self._since = value, now
        seconds = now - self._since
        return seconds if seconds >= self._patience else 0.0

    def forget(self) -> None:
        """Begin anew."""
        self._last = None


class Rise:
    """A counter that should not rise."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._last: float | None = None
        self._count = 0

    def rises(self, page: str) -> int:
        """Returns in how many looks in a row it has risen."""
        value = _sum(page, self._metric)
        risen = value is not None and self._last is not None and value > self._last
        self._last, self._count = value, self._count + 1 if risen else 0
        return self._count

    def forget(self) -> None:
        """Begin anew."""
        self._last, self._count = None, 0


def _page(client: Client, path: str) -> str:
    reply = client.get(path)
    if reply.status != 200:
        raise UnreachableError(f"{path} answers {reply.status}")
    return reply.body


def _sum(page: str, metric: str) -> float | None:
    """The sum of a metric's samples; ``None`` if the page has none."""
    values = re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    return sum(map(float, values)) if values else None
