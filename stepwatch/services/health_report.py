"""What is read, who gets notifications, and what fires, as the parts themselves say."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwatch.system import http_client
from stepwatch.system.http_client import Texts
from stepwatch.system.terminal import Say, duration

PAGE, SILENCES = "/api/v2/alerts?active=true", "/api/v2/silences"
"""Of Alertmanager."""

SEVERITIES = ("critical", "warning", "info")


def firing(text: str | None, silences: str | None) -> list[str]:
    """What is said of each alert on the first of these pages, the worst first; none without an answer."""
    alerts = [alert for alert in json.loads(text or "[]") if alert["labels"]["alertname"] != "Watchdog"]
    ends = {silence["id"]: _time(silence["endsAt"]) for silence in json.loads(silences or "[]")}
    names = {alert["fingerprint"]: alert["labels"]["alertname"] for alert in alerts}
    return [_line(alert, names, ends) for alert in sorted(alerts, key=_order)]


def _order(alert: dict[str, Any]) -> tuple[bool, int, str]:
    severity = alert["labels"].get("severity", "info")
    worst = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    return bool(alert["status"]["inhibitedBy"]), worst, alert["startsAt"]


def _line(alert: dict[str, Any], names: Mapping[str, str], ends: Mapping[str, datetime]) -> str:
    labels, since = alert["labels"], _time(alert["startsAt"])
    words = [labels.get("severity", ""), labels["alertname"], labels.get("run", ""), f"since {since:%H:%M}"]
    muted = _muted(alert["status"], names, ends)
    notes = alert["annotations"]
    action = f"\n    First: {notes['action']}." if "action" in notes else ""
    return f"{'  '.join(filter(None, words))}{muted}: {notes.get('description', '')}{action}"


def _muted(status: dict[str, Any], names: Mapping[str, str], ends: Mapping[str, datetime]) -> str:
    """Why an alert sends no notification, and until when; empty if it does."""
    if not status["silencedBy"]:
        causes = sorted({names.get(each, "another alert") for each in status["inhibitedBy"]})
        return f" (muted by {', '.join(causes)})" if causes else ""
    end = max((ends[each] for each in status["silencedBy"] if each in ends), default=None)
    if end is None:
        return " (silenced)"
    today = end.date() == datetime.now().astimezone().date()
    return f" (silenced until {end:%H:%M})" if today else f" (silenced until {end:%H:%M, %d %b})"


def _time(text: str) -> datetime:
    """A time of Alertmanager's API, in this machine's zone."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()


_DOWN = r'^stepwatch_target_up\{name="([^"]+)",source="(?:mlflow|prometheus_page)"\} 0\.0$'
"""Of what config.yaml names; pages that are registered come and go."""

_HUNG = r'^stepwatch_mount_hung_since_timestamp_seconds\{mount="([^"]+)"\} (\S+)$'

_REFILL = 60
"""Seconds after which an Alertmanager that starts again has all alerts."""
_FIRST_LOOK = 3
"""Seconds that an exporter which has just started gets to look at its files."""
_NEXT_LOOK = 20
"""Seconds that the watchdog, which looks every ten, gets to look again."""


@dataclass(frozen=True)
class News:
    """Whom to ask, and how to put it.

    ``exporter``, ``alertmanager`` and ``watchdog`` are host:port, empty if there is no such part; ``shows``
    says what the exporter reads (`the runs in FOLDER`), ``log`` where people read what it logs.
    """

    exporter: str
    alertmanager: str
    watchdog: str
    shows: str
    log: str

    @property
    def pages(self) -> list[str]:
        """What `tell` needs to have read."""
        wanted = [self._metrics] if self.exporter else []
        if self.alertmanager:
            wanted += [self._receivers, self._alerts, self._silences, self._own_metrics, self._web]
        return [*wanted, *([self._findings] if self.watchdog else [])]

    def tell(self, texts: Texts, say: Say) -> bool:
        """Report runs, what cannot be read, receivers, alerts, and what keeps those from coming.

        Args:
            texts: What was read of ``pages``.
            say: Gets each line.

        Returns:
            Whether nothing does, as far as the watchdog knows.
        """
        if self.exporter:
            page = texts[self._metrics]
            say(f"\n{self.shows[:1].upper()}{self.shows[1:]}: {_runs(page)}.")
            self._tell_hung(page, say)
            self._tell_left_out(page, say)
            self._tell_unreadable(page, say)
            self._tell_silent(page, say)
            self._tell_unjudged(page, say)
        if self.alertmanager:
            say(f"Receivers: {_receivers(texts[self._receivers])}.")
            self._tell_lacking_page(texts[self._web], say)
            self._tell_firing(texts, say)
        return not self.watchdog or self._tell_faults(texts[self._findings], say)

    def tell_after_up(self, say: Say) -> None:
        """Tell what a stack that just started cannot read, and what keeps it from alerting, if anything.

        What the watchdog found before the parts were ready does not count: its next look is waited for.
        """
        begun, deadline = time.time(), time.monotonic() + _FIRST_LOOK
        while not _looked(page := http_client.read(self._metrics, timeout=1)) and time.monotonic() < deadline:
            time.sleep(0.1)
        self._tell_unreadable(page, say)
        if self.alertmanager:
            self._tell_lacking_page(http_client.read(self._web), say)
        if not self.watchdog:
            return
        deadline = time.monotonic() + _NEXT_LOOK
        if waits := _stale(page := http_client.read(self._findings), begun):
            say("\nThe watchdog found a fault before the parts were ready. It looks again within 10 s.")
        while _stale(page, begun) and time.monotonic() < deadline:
            time.sleep(0.2)
            page = http_client.read(self._findings)
        if self._tell_faults(page, say) and waits:
            say("The fault is over.")

    def _tell_firing(self, texts: Texts, say: Say) -> None:
        if texts[self._alerts] is None:
            say("Firing: not known, as Alertmanager does not answer. Prometheus and the light page show it.")
        started = http_client.metric(texts[self._own_metrics] or "", "process_start_time_seconds") or 0
        if (age := time.time() - started) < _REFILL:
            say(
                f"Alertmanager started {duration(age)} ago. Prometheus sends it all alerts again within a "
                "minute: until then some that fire are missing here."
            )
        if alerts := firing(texts[self._alerts], texts[self._silences]):
            say("\n  ".join(["\nFiring:", *alerts]))

    def _tell_faults(self, page: str | None, say: Say) -> bool:
        if page is None:
            say("\nThe watchdog does not answer: what keeps the stack from alerting is not known.")
            return False
        found = json.loads(page)
        if faults := [f"{each['summary']}. {each['description']}" for each in found["findings"]]:
            age = duration(time.time() - found["looked"])
            say("\n  ".join([f"\nAlerting is broken (the watchdog looked {age} ago):", *faults]))
        return not faults

    def _tell_lacking_page(self, page: str | None, say: Say) -> None:
        if http_client.lacks_web_page(page):
            say(
                "This Alertmanager was built without its web page, as Debian's package is: links to silences "
                "in messages and on dashboards open no form. Use `make silence RUN=name` instead. "
                "Fix: put the official release of Alertmanager on PATH."
            )

    def _tell_hung(self, page: str | None, say: Say) -> None:
        for mount, since in re.findall(_HUNG, page or "", re.MULTILINE):
            say(
                f"{mount} has not answered for {duration(time.time() - float(since))}: the runs below it are "
                "not watched until it does. Fix: repair the file server, or unmount the folder."
            )

    def _tell_left_out(self, page: str | None, say: Say) -> None:
        if files := http_client.metric(page or "", 'stepwatch_files{kind="left_out"}'):
            say(
                f"{files:.0f} files are not read: the exporter reads the newest 5000 without a record. "
                "Fix: name the folder or glob that holds the logs only."
            )
        if runs := http_client.metric(page or "", 'stepwatch_left_out_runs{state="running"}'):
            say(
                f"{runs:.0f} live runs are not watched: the exporter watches 400. "
                "Fix: start another Stepwatch for some of the folders."
            )
        if runs := http_client.metric(page or "", 'stepwatch_left_out_runs{state="ended"}'):
            say(f"{runs:.0f} ended runs are not shown: the exporter shows 400 runs, live ones first.")

    def _tell_unreadable(self, page: str | None, say: Say) -> None:
        count = http_client.metric(page or "", 'stepwatch_files{kind="unreadable"}')
        if count:
            say(
                f"The exporter may not read everything there: {count:.0f} files or folders, counted as "
                f"unreadable. {self.log} names them, with the fix of each: `chmod g+r` or `o+r` for a file, "
                "`chmod g+rx` or `o+rx` for a folder. Then they are read within seconds, without `make up`."
            )

    def _tell_silent(self, page: str | None, say: Say) -> None:
        for name in re.findall(_DOWN, page or "", re.MULTILINE):
            say(f"{name} gives no answer that can be read; {self.log} says why.")

    def _tell_unjudged(self, page: str | None, say: Say) -> None:
        if count := http_client.metric(page or "", "stepwatch_unjudged_runs"):
            say(
                f"Runs without a key that rules know: {count:.0f}. {self.log} names them; "
                "say below signals in config.yaml what their keys mean."
            )

    @property
    def _metrics(self) -> str:
        return f"http://{self.exporter}/metrics"

    @property
    def _receivers(self) -> str:
        return f"http://{self.alertmanager}/api/v2/receivers"

    @property
    def _alerts(self) -> str:
        return f"http://{self.alertmanager}{PAGE}"

    @property
    def _silences(self) -> str:
        return f"http://{self.alertmanager}{SILENCES}"

    @property
    def _own_metrics(self) -> str:
        return f"http://{self.alertmanager}/metrics"

    @property
    def _web(self) -> str:
        return f"http://{self.alertmanager}/"

    @property
    def _findings(self) -> str:
        return f"http://{self.watchdog}/api/v1/findings"


def _looked(page: str | None) -> bool:
    return bool(http_client.metric(page or "", "stepwatch_last_poll_timestamp_seconds"))


def _stale(findings: str | None, begun: float) -> bool:
    """Whether a page of findings has some that were found before this Unix time."""
    known = json.loads(findings or "{}")
    return bool(known.get("findings")) and known["looked"] < begun


def _runs(page: str | None) -> str:
    """How many runs there are, by their states."""
    if page is None:
        return "not known, as the exporter does not answer"
    found = re.findall(r'^stepwatch_runs\{state="(\w+)"\} ([1-9]\d*)\.0$', page, re.MULTILINE)
    return ", ".join(f"{count} {state}" for state, count in found) or "none yet"


def _receivers(page: str | None) -> str:
    if page is None:
        return "not known, as Alertmanager does not answer"
    # Those in brackets are made by us, for no one and for tests.
    names = [receiver["name"] for receiver in json.loads(page) if not receiver["name"].startswith("(")]
    return ", ".join(names) or "none, so alerts are sent to no one"
