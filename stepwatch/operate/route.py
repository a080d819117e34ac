"""``python -m stepwatch route RUN ALERT``: who would be notified of an alert, and why; nothing is sent.

The running Alertmanager, if there is one, is asked for silences and for what inhibits the alert now.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stepwatch.alerts.catalogue import TABLE
from stepwatch.config import Config, load
from stepwatch.config.receivers import Matcher
from stepwatch.operate.limits_report import effective
from stepwatch.rules import routing
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.terminal import Say

NO_RUN = "-"
_SEVERITIES = ("critical", "warning", "info")


def route(
    config: Path,
    run: str,
    alert: str,
    say: Say,
    *,
    severity: str | None = None,
    at: str | None = None,
    labels: Sequence[str] = (),
) -> int:
    """Print who would be notified of an alert about a run, and why; who would not, and by which condition.

    Args:
        config: The configuration file.
        run: The run's name, ``-`` for an alert that is about no run.
        alert: The alert's name.
        say: Gets each line.
        severity: Of the alert; without it the worst that config.yaml lets it have.
        at: When, as ISO 8601, in this machine's zone unless it names one; without it, now.
        labels: More labels, each ``name=value``.

    Returns:
        0 when someone is notified, 1 when no one is.

    Raises:
        Refused: The configuration is wrong, an argument is, or the alert is unknown and has no severity.
    """
    settings, when = load(config), _time(at)
    own = dict(_pair(text) for text in labels)
    if severity:
        own["severity"] = severity
    found = labelled(settings, config.name, run, alert, own)
    about = f"{alert} ({found['severity']}) " + (f"of {run}" if found.get("run") else "of no run")
    decided, none = routing.decisions(settings, found, when)
    notified = [each for each in decided if each.notified]
    say(f"{about}, {when.astimezone():%a %d %b %Y %H:%M %Z}:")
    alertmanager = f"http://{settings.address('alertmanager')}"
    held = held_back(alertmanager, {**settings.external_labels, **found}, when if at else None)
    for reason in held or ():
        say(f"  It is {reason}.")
    for each in notified:
        way = each.receiver.integration
        would = "would be" if held else "is"
        say(f"  {each.receiver.name} {would} notified by {way.title}: {each.why}.")
    for each in decided:
        if not each.notified:
            say(f"  {each.receiver.name} is not notified: {each.why}.")
    if held is None:
        say(f"Silences and inhibition were not checked: no Alertmanager answers at {alertmanager}.")
    elif held:
        say("No one is notified while that holds. The pages show it.")
    if not notified:
        say(f"No one is notified{f': {none}' if none else ''}. The pages show it.")
    return 0 if notified and not held else 1


def labelled(config: Config, file: str, run: str, alert: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an alert as far as they are known beforehand, and ``own``.

    ``file`` is what the configuration is called.

    Raises:
        Refused: As `route`.
    """
    known = next((each for each in TABLE if each.name == alert), None)
    severity = own.get("severity") or (_worst(config, run, alert, file) if known else None)
    if severity is None:
        names = [each.name for each in TABLE]
        close = difflib.get_close_matches(alert, names, 1)
        raise Refused(
            f"{alert} is not an alert of Stepwatch, so its severity is unknown. Expected: an alert that "
            f"`make alerts` lists. Fix: {f'did you mean {close[0]}? Or ' if close else ''}"
            "add --severity for one of your own rules."
        )
    about_run = run and run != NO_RUN and (known is None or known.subject == "run")
    found = {
        "alertname": alert,
        "severity": severity,
        **({"topic": known.topic} if known else {}),
        **({"run": run} if about_run else {}),
    }
    return {**found, **own}


def _worst(config: Config, run: str, alert: str, file: str) -> str:
    """Return the worst severity that an alert can have."""
    limits = [each for each in effective(config, None, file) if each.name == alert]
    if run and run != NO_RUN:
        limits = [each for each in effective(config, run, file) if each.name == alert] or limits
    every = {each.severity for each in limits if each.enabled}
    if not every:
        raise Refused(
            f"{alert} is switched off for {run}. Expected: an alert that can fire. Fix: `make alerts "
            "RUN=name` shows what switches it off; with --severity the route is shown anyway."
        )
    return min(every, key=_SEVERITIES.index)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise Refused(f"--label {text} is not a label. Expected: name=value. Fix: write it so.")
    return name, value


def _time(text: str | None) -> datetime:
    try:
        found = datetime.now(timezone.utc) if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise Refused(
            f"--at {text} is not a time. Expected: one such as 2026-02-01T22:30 or 2026-02-01T22:30+08:00. "
            "Fix: write it so."
        ) from error
    return found.astimezone()


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
    if at:
        return found
    # What is silenced or inhibited itself inhibits as well.
    firing = [alert["labels"] for alert in json.loads(alerts)]
    causes = dict.fromkeys(
        f"inhibited by {cause['alertname']} ({cause['severity']}), which fires now"
        for rule in routing.inhibitions()
        for cause in firing
        if rule.inhibits(cause, labels)
    )
    return [*found, *causes]


def _silenced(silences: list[dict[str, Any]], labels: Labels, when: datetime) -> Iterator[str]:
    for each in silences:
        begin, end = _moment(each["startsAt"]), _moment(each["endsAt"])
        if (
            each["status"]["state"] != "expired"
            and begin <= when < end
            and all(
                Matcher(of["name"], _OPERATORS[of["isRegex"], of.get("isEqual", True)], of["value"]).fits(
                    labels
                )
                for of in each["matchers"]
            )
        ):
            why = f": {each['comment']}" if each["comment"] else ""
            yield f"silenced until {end:%a %d %b %Y %H:%M %Z} by {each['createdBy']}{why}"


_OPERATORS = {(False, True): "=", (False, False): "!=", (True, True): "=~", (True, False): "!~"}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.partition(".")[0].rstrip("Z") + "+00:00").astimezone()
