"""The content of messages, in the language of config.yaml. Each channel formats it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from exporter.actions.messages import TOPIC
from exporter.alert_labels import ABOUT
from exporter.notifier.outbox import Alert, Notification
from exporter.translatable import Text

MOST_CLIPPED = 800  # characters of a description or an action
_DASHBOARD = re.compile(r"/d/(stepwatch-[a-z]+(?=[?]|\Z)(?:[?&]var-[a-z]+=[\w.~%-]*)*)", re.ASCII)
"""The dashboard in a rule's link, with its variables. There the cluster is that of series, which may lack the
label that a hub adds to alerts."""
_MOST_SUMMARY = 200
_MOST_NAME = 200
_MOST_OTHERS = 5
_HOURS = 3600.0
SEVERITIES = ("critical", "warning", "info")
_SEVERITY_WORDS = {
    "critical": Text("critical"),
    "warning": Text("warning"),
    "info": Text("info"),
    "firing": Text("firing"),
}


@dataclass(frozen=True)
class Link:
    """An address with its words."""

    words: str
    url: str


@dataclass(frozen=True)
class Card:
    """A message before a channel formats it; all its texts may contain text of others.

    ``state`` is ``resolved`` or the severity, ``facts`` are paragraphs of one line, ``items`` a line for each
    alert of a group (none for one alert), ``more`` the number of further ones, ``line`` the message in one
    line, for merged ones.
    """

    title: str
    state: str
    facts: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    more: int = 0
    links: tuple[Link, ...] = ()
    line: str = ""


@dataclass(frozen=True)
class Known:
    """What is known about the run of an alert when its message is sent: its step, and its other alerts."""

    step: str = ""
    others: tuple[str, ...] = ()


NOTHING_KNOWN = Known()


@dataclass(frozen=True)
class Addresses:
    """Where links lead: base URLs without a slash at their end; ``grafana`` may be empty."""

    exporter: str
    alertmanager: str
    notifier: str
    grafana: str = ""


class Wording:
    """Writes the text of notifications.

    ``waits``: seconds that each alert's condition must hold, by which the onset that all pages show is
    earlier than Alertmanager's start.
    """

    def __init__(
        self,
        addresses: Addresses,
        texts: Mapping[str, str] | None = None,
        waits: Mapping[str, float] | None = None,
    ) -> None:
        self._addresses, self._texts, self._waits = addresses, texts or {}, waits or {}

    def translate(self, words: str, /, **parts: object) -> str:
        """Return a text in the language of messages."""
        return Text(words, **parts).translated(self._texts)

    def card(self, notification: Notification, number: int, known: Known = NOTHING_KNOWN) -> Card:
        """Return the message of a notification with this id in the queue."""
        alerts, count = notification.alerts, len(notification.alerts) + notification.truncated
        first = (notification.firing or alerts)[0]
        state = notification.labels.get("severity", "info") if notification.firing else "resolved"
        title = self._title(notification, count)
        facts: list[str] = []
        items: tuple[str, ...] = ()
        if count == 1:
            facts = self._facts(first, known)
        else:
            shared = notification.labels
            over = (alert for alert in alerts if not alert.firing)
            items = tuple(self._item(alert, shared) for alert in (*notification.firing, *over))
            if known.others:
                facts = [self._others(known.others)]
        return Card(
            title=title,
            state=state if state in (*SEVERITIES, "resolved") else "info",
            facts=tuple(facts),
            items=items,
            more=notification.truncated,
            links=tuple(self._links(notification, first, number)),
            line=self._line(title, notification, first),
        )

    def merged(self, cards: Sequence[Card]) -> Card:
        """Return one message for several that arrived faster than the channel accepts them."""
        order = ("critical", "warning", "info", "resolved")
        state = min((card.state for card in cards), key=order.index)
        return Card(
            title=self.translate("{count} notifications at once", count=len(cards)),
            state=state,
            items=tuple(card.line for card in cards),
            links=(Link(self.translate("All alerts"), f"{self._addresses.alertmanager}/#/alerts"),),
        )

    def and_more(self, count: int) -> str:
        """Return the text that replaces so many lines that do not fit."""
        return self.translate("and {count} more", count=count)

    def _title(self, notification: Notification, count: int) -> str:
        labels = notification.labels
        name = labels.get("alertname") or self.translate("Several alerts")
        run = clipped(labels.get("run", ""), _MOST_NAME)
        said = f"{name}  {run}" if run else name
        if count == 1:
            summary = clipped(notification.alerts[0].annotations.get("summary", ""), _MOST_SUMMARY)
            said += f"  {summary}" if summary else ""
        else:
            firing = len(notification.firing)
            over = len(notification.alerts) - firing
            said += self.translate(": {count} firing", count=firing + notification.truncated)
            said += self.translate(", {count} resolved", count=over) if over else ""
        return one_line(said if notification.firing else self.translate("Resolved: ") + said)

    def _facts(self, alert: Alert, known: Known) -> list[str]:
        facts = []
        if said := alert.annotations.get("description") or alert.annotations.get("summary"):
            facts.append(one_line(clipped(said, MOST_CLIPPED)))
        if alert.firing and (action := alert.annotations.get("action")):
            facts.append(self.translate("First: {action}.", action=one_line(clipped(action, MOST_CLIPPED))))
        if run := alert.labels.get("run"):
            run = one_line(clipped(run, _MOST_NAME))
            facts.append(
                self.translate("Run {run}, now at step {step}", run=run, step=known.step)
                if known.step
                else self.translate("Run {run}", run=run)
            )
        if others := tuple(name for name in known.others if name not in (said or "")):
            facts.append(self._others(others))
        facts.append(self._when(alert))
        where = alert.annotations.get("runbook_url", "")
        if where and not _is_address(where):
            file, heading = where.partition("#")[0], alert.name
            place = self.translate("{file}, heading {heading}", file=file, heading=heading)
            facts.append(self.translate("Runbook: {where}", where=place))
        return facts

    def _line(self, title: str, notification: Notification, first: Alert) -> str:
        """Return a notification as one line among others, which names each alert of a group."""
        line = f"{title} ({self._when(first)})"
        if len(notification.alerts) == 1:
            return line
        shared = notification.labels
        names = (
            " ".join(value for name, value in sorted(alert.labels.items()) if name not in shared)
            for alert in notification.alerts
        )
        return one_line(f"{line}: {clipped(', '.join(names), _MOST_SUMMARY)}")

    def _others(self, others: Sequence[str]) -> str:
        shown = ", ".join(others[:_MOST_OTHERS])
        left = len(others) - _MOST_OTHERS
        return self.translate(
            "Also firing: {names}", names=f"{shown}, {self.and_more(left)}" if left > 0 else shown
        )

    def _item(self, alert: Alert, shared: Mapping[str, str]) -> str:
        labels = " ".join(
            f"{name}={value}" for name, value in sorted(alert.labels.items()) if name not in shared
        )
        said = alert.annotations.get("description") or alert.annotations.get("summary", "")
        when = self.translate(" ({when})", when=self._when(alert))
        return one_line(f"{clipped(labels, _MOST_NAME)}: {clipped(said, _MOST_SUMMARY)}{when}")

    def _when(self, alert: Alert) -> str:
        severity = alert.labels.get("severity", "firing")
        word = _SEVERITY_WORDS[severity].translated(self._texts) if severity in _SEVERITY_WORDS else severity
        start = self._clock(self._onset(alert))
        if not alert.firing:
            return self.translate(
                "Was {severity} from {start} to {end}",
                severity=word,
                start=start,
                end=self._clock(alert.ended),
            )
        return self.translate("{severity} since {start}", severity=word[:1].upper() + word[1:], start=start)

    def _onset(self, alert: Alert) -> float:
        return alert.begun - self._waits.get(alert.name, 0.0)

    @staticmethod
    def _clock(seconds: float) -> str:
        return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(seconds)).strip()

    def _links(self, notification: Notification, alert: Alert, number: int) -> list[Link]:
        where, translate = self._addresses, self.translate
        links = [Link(translate("Dashboard at that time"), self._dashboard(alert))]
        if _is_address(book := alert.annotations.get("runbook_url", "")):
            links.append(Link(translate("Runbook"), book))
        if alert.labels.get("topic") == TOPIC:  # a silence vetoes nothing
            return links
        if notification.firing and not notification.is_test:
            links.append(Link(translate("Silence for 2 h"), f"{where.notifier}/silence/{number}"))
        return links

    def _dashboard(self, alert: Alert) -> str:
        run, where = alert.labels.get("run", ""), self._addresses
        if not where.grafana:
            cluster = alert.labels.get("cluster")  # on a hub two may have a run of one name
            of_cluster = f"?cluster={escaped(cluster)}" if cluster else ""
            return f"{where.exporter}/run/{escaped(run)}{of_cluster}" if run else f"{where.exporter}/"
        # The circuit breaker's alerts and other people's rules have no link of their own.
        page = f"stepwatch-training?var-run={escaped(run)}" if run else "stepwatch-runs"
        own = alert.annotations.get("dashboard_url", "")
        if found := _DASHBOARD.search(own):
            page = found[1]
        onset = self._onset(alert)
        begin, end = onset - 6 * _HOURS, (onset if alert.firing else alert.ended) + _HOURS
        if found := re.search(r"[?&]from=(\d{13})(?:&|$)", own):  # the start of the run
            begin = max(begin, int(found[1]) / 1000)
        during = f"from={1000 * begin:.0f}&to={1000 * end:.0f}"
        return f"{where.grafana}/d/{page}{'&' if '?' in page else '?'}{during}"


def silenced_by(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by which a group is silenced."""
    return {name: labels[name] for name in ("alertname", *ABOUT) if labels.get(name)}


def escaped(text: str) -> str:
    """Return a text as a part of a URL."""
    return quote(text, safe="", errors="replace")


def clipped(text: str, most: int) -> str:
    """Return a text cut to a number of characters, with three dots."""
    return text if len(text) <= most else f"{text[:most]} ..."


def one_line(text: str) -> str:
    """Return a text without characters that start a line, hide others or change the direction."""
    return " ".join(
        "".join(sign if sign.isprintable() or sign == " " else " " for sign in text).split(" ")
    ).strip()


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))
