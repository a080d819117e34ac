"""Silences and inhibitions of an alert in the running Alertmanager."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from stepwatch.alerts.incidents import PAIRS
from stepwatch.config.receivers import Matcher, to_matcher
from stepwatch.system import http_client

Labels = Mapping[str, str]


def held_back(alertmanager: str, labels: Labels, at: datetime | None) -> list[str] | None:
    """Return why the running Alertmanager does not send an alert with these labels.

    Args:
        alertmanager: Its URL.
        labels: Of the alert, as far as they are known.
        at: When; None for now. Inhibitions are known only for now.

    Returns:
        A text for each reason; None if Alertmanager does not answer.
    """
    silences, alerts = (http_client.read(f"{alertmanager}/api/v2/{what}") for what in ("silences", "alerts"))
    if silences is None or alerts is None:
        return None
    when = (at or datetime.now(timezone.utc)).astimezone()
    found = [*_silenced(json.loads(silences), labels, when)]
    return found if at else [*found, *_inhibited(json.loads(alerts), labels)]


def _silenced(silences: list[dict[str, Any]], labels: Labels, when: datetime) -> Iterator[str]:
    for each in silences:
        begin, end = _time(each["startsAt"]), _time(each["endsAt"])
        if each["status"]["state"] != "expired" and begin <= when < end and _fits(each["matchers"], labels):
            why = f": {each['comment']}" if each["comment"] else ""
            yield f"silenced until {end:%a %d %b %Y %H:%M %Z} by {each['createdBy']}{why}"


def _fits(matchers: list[dict[str, Any]], labels: Labels) -> bool:
    return all(
        Matcher(each["name"], _OPERATORS[each["isRegex"], each.get("isEqual", True)], each["value"]).fits(
            labels
        )
        for each in matchers
    )


_OPERATORS = {(False, True): "=", (False, False): "!=", (True, True): "=~", (True, False): "!~"}


def _inhibited(alerts: list[dict[str, Any]], labels: Labels) -> Iterator[str]:
    # What is silenced or inhibited itself inhibits as well.
    causes: dict[str, None] = {}
    for rule in (rule for pair in PAIRS for rule in pair.rules):
        source, target = (
            [to_matcher(text) for text in rule[key]] for key in ("source_matchers", "target_matchers")
        )
        if not all(each.fits(labels) for each in target):
            continue
        # Alertmanager keeps alerts that fit both sides from inhibiting each other.
        both = all(each.fits(labels) for each in source)
        for alert in alerts:
            theirs = alert["labels"]
            if (
                all(each.fits(theirs) for each in source)
                and not (both and all(each.fits(theirs) for each in target))
                and all(theirs.get(name, "") == labels.get(name, "") for name in rule.get("equal", ()))
            ):
                causes[f"inhibited by {theirs['alertname']} ({theirs['severity']}), which fires now"] = None
    yield from causes


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.partition(".")[0].rstrip("Z") + "+00:00").astimezone()
