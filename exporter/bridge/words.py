"""The words of a message, in the language of config.yaml; a template gives them each robot's form."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from exporter.alert_labels import ABOUT
from exporter.bridge.webhook import Alert, Notification
from exporter.translatable import Text

ACTIONS_TOPIC = "actions"
"""The topic of announcements of actions: a silence of one vetoes nothing."""

_MOST_TEXT = 800  # characters of a description or an action
_MOST_SUMMARY = 200
_DASHBOARD = re.compile(r"/d/(stepwatch-[a-z]+(?=[?]|\Z)(?:[?&]var-[a-z]+=[\w.~%-]*)*)", re.ASCII)
"""The dashboard in a rule's link, with its variables. There the cluster is that of series, which may lack the
label that a hub adds to alerts."""
_HOUR = 3600.0
_SEVERITIES = {each: Text(each) for each in ("critical", "warning", "info")}


class Link(NamedTuple):
    """An address with its words."""

    words: str
    url: str


@dataclass(frozen=True)
class Card:
    """A message before a template formats it; every text may contain text of others.

    ``state`` is ``resolved`` or a severity, ``facts`` are paragraphs of one line, ``items`` a line for each
    alert of a group (none for one alert), ``more`` the number of alerts without a line.
    """

    title: str
    state: str
    facts: list[str]
    items: list[str]
    more: int
    links: list[Link]


class Words:
    """Writes cards.

    ``texts`` are translations by English text, ``waits`` the seconds that each alert's condition must hold,
    by which the onset on all pages is earlier than Alertmanager's start; the rest are addresses for people
    (``grafana`` may be empty).
    """

    def __init__(
        self,
        exporter: str,
        alertmanager: str,
        grafana: str = "",
        *,
        texts: Mapping[str, str] | None = None,
        waits: Mapping[str, float] | None = None,
    ) -> None:
        self._exporter, self._alertmanager, self._grafana = exporter, alertmanager, grafana
        self._texts, self._waits = texts or {}, waits or {}

    def translate(self, words: str, /, **parts: object) -> str:
        """Return a text in the language of messages."""
        return Text(words, **parts).translated(self._texts)

    def card(self, notification: Notification) -> Card:
        """Return the message of a notification."""
        alerts, state = notification.alerts, notification.state
        first = (notification.firing or alerts)[0]
        alone = len(alerts) + notification.truncated == 1
        over = (alert for alert in alerts if not alert.firing)
        ordered = (*notification.firing, *over)
        return Card(
            title=self._title(notification, alone=alone),
            state=state if state in (*_SEVERITIES, "resolved") else "info",
            facts=self._facts(first) if alone else [],
            items=[] if alone else [self._item(alert, notification.labels) for alert in ordered],
            more=notification.truncated,
            links=self._links(notification, first),
        )

    def _title(self, notification: Notification, *, alone: bool) -> str:
        labels = notification.labels
        name = labels.get("alertname") or self.translate("Several alerts")
        said = f"{name}  {_clipped(labels['run'], _MOST_SUMMARY)}" if labels.get("run") else name
        if alone:
            summary = notification.alerts[0].annotations.get("summary", "")
            said += f"  {_clipped(summary, _MOST_SUMMARY)}" if summary else ""
        else:
            firing = len(notification.firing)
            over = len(notification.alerts) - firing
            said += self.translate(": {count} firing", count=firing + notification.truncated)
            said += self.translate(", {count} resolved", count=over) if over else ""
        return _one_line(said if notification.firing else self.translate("Resolved: ") + said)

    def _facts(self, alert: Alert) -> list[str]:
        said, action = alert.annotations.get("description"), alert.annotations.get("action")
        facts = [_one_line(_clipped(said or alert.annotations.get("summary", ""), _MOST_TEXT))]
        if alert.firing and action:
            facts.append(self.translate("First: {action}.", action=_one_line(_clipped(action, _MOST_TEXT))))
        if run := alert.labels.get("run"):
            facts.append(self.translate("Run {run}", run=_one_line(_clipped(run, _MOST_SUMMARY))))
        facts.append(self._when(alert))
        where = alert.annotations.get("runbook_url", "")
        if where and not _is_address(where):
            file = where.partition("#")[0]
            place = self.translate("{file}, heading {heading}", file=file, heading=alert.name)
            facts.append(self.translate("Runbook: {where}", where=place))
        return [fact for fact in facts if fact]

    def _item(self, alert: Alert, shared: Mapping[str, str]) -> str:
        labels = " ".join(
            f"{name}={text}" for name, text in sorted(alert.labels.items()) if name not in shared
        )
        said = alert.annotations.get("description") or alert.annotations.get("summary", "")
        when = self.translate(" ({when})", when=self._when(alert))
        return _one_line(f"{_clipped(labels, _MOST_SUMMARY)}: {_clipped(said, _MOST_SUMMARY)}{when}")

    def _when(self, alert: Alert) -> str:
        severity = alert.labels.get("severity", "firing")
        word = _SEVERITIES.get(severity, Text("firing")).translated(self._texts)
        start = _clock(self._onset(alert))
        if alert.firing:
            return self.translate(
                "{severity} since {start}", severity=word[:1].upper() + word[1:], start=start
            )
        return self.translate(
            "Was {severity} from {start} to {end}", severity=word, start=start, end=_clock(alert.ended)
        )

    def _onset(self, alert: Alert) -> float:
        return alert.begun - self._waits.get(alert.name, 0.0)

    def _links(self, notification: Notification, alert: Alert) -> list[Link]:
        links = [Link(self.translate("Dashboard at that time"), self._dashboard(alert))]
        if _is_address(book := alert.annotations.get("runbook_url", "")):
            links.append(Link(self.translate("Runbook"), book))
        if notification.firing and alert.labels.get("topic") != ACTIONS_TOPIC:
            links.append(
                Link(self.translate("Silence for 2 h"), silence_url(self._alertmanager, notification.labels))
            )
        return links

    def _dashboard(self, alert: Alert) -> str:
        run = alert.labels.get("run", "")
        if not self._grafana:
            cluster = alert.labels.get("cluster")  # on a hub two may have a run of one name
            of_cluster = f"?cluster={_escaped(cluster)}" if cluster else ""
            return f"{self._exporter}/run/{_escaped(run)}{of_cluster}" if run else f"{self._exporter}/"
        # Announcements of actions and other people's rules have no link of their own.
        page = f"stepwatch-training?var-run={_escaped(run)}" if run else "stepwatch-runs"
        own = alert.annotations.get("dashboard_url", "")
        if found := _DASHBOARD.search(own):
            page = found[1]
        onset = self._onset(alert)
        begin, end = onset - 6 * _HOUR, (onset if alert.firing else alert.ended) + _HOUR
        if found := re.search(r"[?&]from=(\d{13})(?:&|$)", own):  # the start of the run
            begin = max(begin, int(found[1]) / 1000)
        during = f"from={1000 * begin:.0f}&to={1000 * end:.0f}"
        return f"{self._grafana}/d/{page}{'&' if '?' in page else '?'}{during}"


def silence_url(alertmanager: str, labels: Mapping[str, str]) -> str:
    """Return where people silence what has these labels: Alertmanager's form, filled in."""
    about = {name: labels[name] for name in ("alertname", *ABOUT) if labels.get(name)}
    matchers = ",".join(f'{name}="{_quoted(value)}"' for name, value in about.items())
    return f"{alertmanager}/#/silences/new?filter={_escaped(f'{{{matchers}}}')}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(seconds)).strip()


def _one_line(text: str) -> str:
    """Return a text without characters that start a line, hide others or change the direction."""
    return "".join(sign if sign.isprintable() else " " for sign in text).strip()


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))
