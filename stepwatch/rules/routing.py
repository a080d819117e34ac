"""Who is notified of which alert: the routes and inhibitions of Alertmanager.

A receiver gets what fits each of its conditions, within its hours. What fits no receiver that is there round
the clock goes to the first of these, so that no pattern loses an alert. An alert about a receiver that fails
goes to another one as well, if there is any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwatch.alerts.incidents import PAIRS, Pair
from stepwatch.config import Config
from stepwatch.config.receivers import Matcher, Receiver, to_matcher
from stepwatch.schema.scalars import to_re2

Settings = dict[str, Any]
Conditions = Callable[[Receiver], tuple[Matcher, ...]]

_SEVERITIES = ("critical", "warning")
WATCHDOG, ACTIONS = "Watchdog", "actions"
NO_ONE, DEADMAN = "(none)", "(deadman)"
_AT_ONCE = {"group_by": ["..."], "group_wait": "0s", "group_interval": "10s", "repeat_interval": "5d"}


def own_hours(receiver: Receiver) -> str:
    """Return the name of the time interval that a receiver's ``when`` becomes; no user's name is like it."""
    return f"(when) {receiver.name}"


def time_intervals(config: Config) -> list[Settings]:
    """Return Alertmanager's time intervals."""
    named = [interval.settings() for interval in config.time_intervals]
    own = [
        {"name": own_hours(receiver), "time_intervals": [receiver.when.settings()]}
        for receiver in config.receivers
        if receiver.when
    ]
    return named + own


def routes(config: Config) -> list[Settings]:
    """Return the routes of alerts by severity."""
    found = []
    for severity in _SEVERITIES:
        pace = _pace(config, severity)
        always, hourly = _takers(config, severity)
        if always:
            found += [_leaf(each, f'severity="{severity}"', pace) for each in hourly]
        found += _complete(always or hourly, f'severity="{severity}"', pace, lambda each: each.conditions)
    return found


def _pace(config: Config, severity: str) -> Settings:
    timing = getattr(config.notify, severity)
    return {key: str(getattr(timing, key)) for key in ("group_wait", "group_interval", "repeat_interval")}


def spares(config: Config) -> list[Settings]:
    """Return the routes of alerts about receivers that fail, to others that would not get them."""
    found = []
    for labels, (named, *by), broken in _failures(config):
        severity, ways = labels["severity"], {each.integration.title for each in broken}
        others = [each for each in config.receivers if each not in broken]
        if others and not any(each in others for each in _notified(config, labels)):

            def least(each: Receiver, severity: str = severity, ways: set[str] = ways) -> tuple[bool, ...]:
                return severity not in each.severities, each.has_hours, each.integration.title in ways

            spare = _leaf(min(others, key=least), str(named), _pace(config, severity), lambda _: ())
            found.append({**spare, "matchers": [*spare["matchers"], *map(str, by)]})
    return found


def _failures(config: Config) -> Iterator[tuple[dict[str, str], list[Matcher], tuple[Receiver, ...]]]:
    """Yield each alert that says that receivers are not notified: labels, what fits it, and who these are."""
    own = {"topic": "stack", **config.external_labels}
    lost, down = config.alerts.block("NotificationFailures"), config.alerts.block("BridgeDown")
    if lost.enabled and lost.severity in _SEVERITIES:
        name = type(lost).__name__
        named = Matcher("alertname", "=", name)
        known = {**own, "alertname": name, "severity": lost.severity}
        for each in config.receivers:
            # Its announcements are counted by another name.
            by = (
                Matcher("receiver_name", "=~", f"([(]actions[)] )?{to_re2(each.name)}")
                if config.actions.enabled
                else Matcher("receiver_name", "=", each.name)
            )
            yield {**known, "receiver_name": each.name}, [named, by], (each,)
        # Alertmanager names receivers from 0.27 on, before that only how they are notified.
        for label in dict.fromkeys(each.integration.label for each in config.receivers):
            by_way = (Matcher("integration", "=", label), Matcher("receiver_name", "=", ""))
            broken = tuple(each for each in config.receivers if each.integration.label == label)
            yield {**known, "integration": label}, [named, *by_way], broken
    robots = tuple(each for each in config.receivers if each.robot)
    if robots and down.enabled and down.severity in _SEVERITIES:
        name = type(down).__name__
        known = {**own, "alertname": name, "severity": down.severity}
        yield known, [Matcher("alertname", "=", name)], robots


def _notified(config: Config, labels: Mapping[str, str]) -> list[Receiver]:
    """Return who is notified of an alert, within their hours: all whom it fits, or the first."""
    always, hourly = _takers(config, labels["severity"])
    steady = always or hourly
    fitting = [each for each in (*always, *hourly) if all(wanted.fits(labels) for wanted in each.conditions)]
    return fitting if any(each in steady for each in fitting) else [*fitting, *steady[:1]]


def announcements(config: Config) -> list[Settings]:
    """Return the routes of announcements and results of actions: by run and label, at any hour."""
    every = _complete(
        config.receivers, f'topic="{ACTIONS}"', _AT_ONCE, _of_run, name=lambda each: f"(actions) {each}"
    )
    return [{**route, **_AT_ONCE} for route in every]


def deadman(config: Config) -> Settings:
    """Return where Watchdog goes: to the checker outside if there is one, and to no one else."""
    matchers = {"matchers": [f'alertname="{WATCHDOG}"']}
    if not config.deadman.enabled:
        return {**matchers, "receiver": NO_ONE}
    return {**matchers, "receiver": DEADMAN, **config.deadman.pace}


def _of_run(receiver: Receiver) -> tuple[Matcher, ...]:
    return tuple(each for each in receiver.conditions if each.label != "topic")


def _takers(config: Config, severity: str) -> tuple[list[Receiver], list[Receiver]]:
    """Return who takes a severity: those that are there round the clock, and those that have hours."""
    takers = [receiver for receiver in config.receivers if severity in receiver.severities]
    return [each for each in takers if not each.has_hours], [each for each in takers if each.has_hours]


def _complete(
    receivers: Sequence[Receiver],
    matcher: str,
    pace: Settings,
    conditions: Conditions,
    name: Callable[[str], str] = str,
) -> list[Settings]:
    """Return a route for each receiver, within one that has the first take what fits none if that can be."""
    if not receivers or not all(map(conditions, receivers)):
        return [_leaf(each, matcher, pace, conditions, name) for each in receivers]
    first = receivers[0]
    inside = [
        {**{key: value for key, value in leaf.items() if key not in pace}, "matchers": leaf["matchers"][1:]}
        for leaf in (_leaf(each, matcher, pace, conditions, name) for each in receivers)
    ]
    return [{**_leaf(first, matcher, pace, lambda _: (), name), "routes": inside}]


def _leaf(
    receiver: Receiver,
    matcher: str,
    pace: Settings,
    conditions: Conditions = lambda each: each.conditions,
    name: Callable[[str], str] = str,
) -> Settings:
    active = [own_hours(receiver)] if receiver.when else [*receiver.active_time_intervals]
    hours = {"active_time_intervals": active, "mute_time_intervals": [*receiver.mute_time_intervals]}
    return {
        "matchers": [matcher, *map(str, conditions(receiver))],
        "receiver": name(receiver.name),
        **pace,
        **({key: names for key, names in hours.items() if names} if pace is not _AT_ONCE else {}),
        # The next receiver may want it as well.
        "continue": True,
    }


def gaps(config: Config) -> Iterator[str]:
    """Yield how a critical alert would not be sent, although there are receivers."""
    always, hourly = _takers(config, "critical")
    if config.receivers and not always and not hourly:
        yield "no receiver takes critical alerts"
    elif not always and hourly and not _complementary(hourly):
        names = ", ".join(each.name for each in hourly)
        yield f"critical alerts reach no one outside the hours of {names}"


def _complementary(receivers: Sequence[Receiver]) -> bool:
    """Whether one is notified exactly when another is not."""
    plain = [each for each in receivers if not each.when]
    return any(
        set(one.active_time_intervals) == set(other.mute_time_intervals)
        and not one.mute_time_intervals
        and not other.active_time_intervals
        and not one.conditions
        and not other.conditions
        for one in plain
        for other in plain
    )


@dataclass(frozen=True)
class Inhibition:
    """A rule of Alertmanager: while an alert on one side fires, one on the other side is not sent."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def inhibits(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        """Return whether an alert with the second labels is not sent while one with the first fires."""

        def both(labels: Mapping[str, str]) -> bool:
            return all(each.fits(labels) for each in (*self.source, *self.target))

        return (
            all(source.get(label, "") == target.get(label, "") for label in self.equal)
            and all(each.fits(source) for each in self.source)
            and all(each.fits(target) for each in self.target)
            # Alertmanager keeps alerts that fit both sides from inhibiting each other.
            and not (both(source) and both(target))
        )


def inhibitions(pairs: Iterable[Pair] = PAIRS) -> list[Inhibition]:
    """Return the rules of Alertmanager for pairs of cause and effect."""
    return [
        Inhibition(
            tuple(map(to_matcher, rule["source_matchers"])),
            tuple(map(to_matcher, rule["target_matchers"])),
            tuple(rule.get("equal", ())),
        )
        for pair in pairs
        for rule in pair.rules
    ]
