"""Who is notified of which alert: the routes and inhibitions of Alertmanager, and the same with its reasons.

A receiver gets what fits each of its conditions, within its hours. What fits no receiver that is there round
the clock goes to the first of these, so that no pattern loses an alert. An alert about a receiver that fails
goes to another one as well, if there is any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwatch.alerts.incidents import PAIRS, Pair
from stepwatch.alerts.stack import NotificationFailures, NotifierDown
from stepwatch.config import Config
from stepwatch.config.receivers import Matcher, Receiver, to_matcher
from stepwatch.schema.errors import quoted
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
    return [
        _leaf(spare, str(failing.matchers[0]), _pace(config, failing.labels["severity"]), failing.conditions)
        for failing in _failures(config)
        if (spare := failing.spare(config))
    ]


@dataclass(frozen=True)
class _Failing:
    """An alert about receivers that are not notified: its labels, what fits it, and who these are."""

    labels: Mapping[str, str]
    matchers: tuple[Matcher, ...]
    broken: tuple[Receiver, ...]

    def conditions(self, _: Receiver) -> tuple[Matcher, ...]:
        """What fits it besides its name."""
        return self.matchers[1:]

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert is such a one."""
        return all(each.fits(labels) for each in self.matchers)

    def spare(self, config: Config) -> Receiver | None:
        """Return who is to be notified besides; None if another one is anyway, or there is no other."""
        severity = self.labels["severity"]
        others = [each for each in config.receivers if each not in self.broken]
        if any(each in others for each in _notified(config, self.labels)):
            return None
        ways = {each.integration.title for each in self.broken}
        return min(
            others,
            key=lambda each: (
                severity not in each.severities,
                each.has_hours,
                each.integration.title in ways,
            ),
            default=None,
        )


def _failures(config: Config) -> Iterator[_Failing]:
    """Yield each alert that says that some receivers are not notified."""
    own = {"topic": "stack", **config.external_labels}
    lost, down = config.alerts.of(NotificationFailures), config.alerts.of(NotifierDown)
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
            yield _Failing({**known, "receiver_name": each.name}, (named, by), (each,))
        # Alertmanager names receivers from 0.27 on, before that only how they are notified.
        for label in dict.fromkeys(each.integration.label for each in config.receivers):
            by_way = (Matcher("integration", "=", label), Matcher("receiver_name", "=", ""))
            broken = tuple(each for each in config.receivers if each.integration.label == label)
            yield _Failing({**known, "integration": label}, (named, *by_way), broken)
    if config.notifier and down.enabled and down.severity in _SEVERITIES:
        name = type(down).__name__
        robots = tuple(each for each in config.receivers if each.robot)
        known = {**own, "alertname": name, "severity": down.severity}
        yield _Failing(known, (Matcher("alertname", "=", name),), robots)


def _notified(config: Config, labels: Mapping[str, str]) -> list[Receiver]:
    """Return who is notified of an alert, within their hours: all whom it fits, or the first."""
    always, hourly = _takers(config, labels["severity"])
    steady = always or hourly
    fitting = [each for each in (*always, *hourly) if _misfit(each, labels) is None]
    return fitting if any(each in steady for each in fitting) else [*fitting, *steady[:1]]


def announcements(config: Config) -> list[Settings]:
    """Return the routes of what the circuit breaker announces and did: by run and label, at any hour."""
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


@dataclass(frozen=True)
class Decision:
    """Whether a receiver is notified of an alert, and why."""

    receiver: Receiver
    notified: bool
    why: str


def decisions(config: Config, labels: Mapping[str, str], at: datetime) -> tuple[list[Decision], str]:
    """Return what is decided for each receiver about an alert, and why none is asked where that is so."""
    if labels.get("alertname") == WATCHDOG:
        if config.deadman.enabled:
            return [], f"{WATCHDOG} always fires, and goes to deadman alone, every {config.deadman.every}"
        return [], f"{WATCHDOG} always fires and notifies no one"
    if labels.get("severity") == "info":
        return [], "an alert of severity info is shown on the pages only"
    if labels.get("severity") not in _SEVERITIES:
        return [], f"severity is none of {' and '.join(_SEVERITIES)}"
    if not config.receivers:
        return [], "config.yaml has no receivers"
    always, hourly = _takers(config, labels["severity"])
    steady = always or hourly
    last = None if any(_misfit(each, labels) is None for each in steady) else next(iter(steady), None)
    besides = [
        spare for failing in _failures(config) if failing.fits(labels) and (spare := failing.spare(config))
    ]
    return [
        _besides(config, each, at)
        if each in besides
        else _decided(config, each, labels, at, spare=each is last)
        for each in config.receivers
    ], ""


def _besides(config: Config, receiver: Receiver, at: datetime) -> Decision:
    """Decide of a receiver that gets an alert about the only ones that it would go to."""
    why = "the alert is about those that would get it otherwise, and these fail"
    muted = _muted(config, receiver, at)
    return Decision(receiver, not muted, muted or why)


def _decided(
    config: Config, receiver: Receiver, labels: Mapping[str, str], at: datetime, *, spare: bool
) -> Decision:
    if labels["severity"] not in receiver.severities:
        return Decision(receiver, False, f"severities: {', '.join(receiver.severities)}")  # noqa: FBT003
    misfit = _misfit(receiver, labels)
    if misfit and not spare:
        return Decision(receiver, False, misfit)  # noqa: FBT003
    if muted := _muted(config, receiver, at):
        return Decision(receiver, False, muted)  # noqa: FBT003
    if misfit:
        return Decision(receiver, True, f"the first, as no conditions fit (its own: {misfit})")  # noqa: FBT003
    fits = ", ".join(("severity", *_named(receiver)))
    hours = ", within its hours" if receiver.has_hours else ""
    return Decision(receiver, True, f"{fits} fit{'' if _named(receiver) else 's'}{hours}")  # noqa: FBT003


def _named(receiver: Receiver) -> list[str]:
    return [key for key in ("topics", "runs", "matchers") if getattr(receiver, key)]


def _misfit(receiver: Receiver, labels: Mapping[str, str]) -> str | None:
    """Return the first condition of a receiver that an alert does not fit, as config.yaml has it."""
    known = iter(receiver.conditions)
    for key in ("topics", "runs"):
        if (wanted := getattr(receiver, key)) and not next(known).fits(labels):
            label = key.removesuffix("s")
            has = quoted(labels[label]) if labels.get(label) else "none"
            return f"{key}: {', '.join(wanted)}, and its {label} is {has}"
    missed = next((each for each in receiver.matchers if not each.fits(labels)), None)
    return (
        f"matchers: {missed}, and its {missed.label} is {quoted(labels.get(missed.label, ''))}"
        if missed
        else None
    )


def _muted(config: Config, receiver: Receiver, at: datetime) -> str | None:
    """Return why a receiver is not notified at this time."""
    named = {interval.name: interval for interval in config.time_intervals}
    if receiver.when and not receiver.when.hold(at):
        return "muted: outside when"
    active, mute = receiver.active_time_intervals, receiver.mute_time_intervals
    if active and not any(named[name].hold(at) for name in active):
        return f"muted: outside active_time_intervals {', '.join(active)}"
    found = next((name for name in mute if named[name].hold(at)), None)
    return f"muted: within mute_time_intervals {found}" if found else None


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
