"""The cases that follow from what is said about a rule, each a run of its own in one promtool group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from exporter.runs.stats import catalogue
from tests.rules import selectors
from tests.rules.cases import Condition, Rule, Values
from tests.rules.healthy import HEALTHY, STREAKS
from tests.rules.promtool import INTERVAL, Group, Moment
from tests.rules.rendered import whole
from tests.rules.series import EXPORTER, OTHER_EXPORTER, STATE, Series, state_series

NAN, STALE, MISSING = "NaN", "stale", "missing"
"""What a series may be instead of having a value: not a number, gone with its target, not scraped."""

TARGETS = (EXPORTER,)


class Case(NamedTuple):
    """A run with values that stay, and whether the rule fires on it."""

    run: str
    values: Values
    fires: bool


class Phase(NamedTuple):
    """How a run is from a second on; all its series ``are`` something else if that is given."""

    since: int
    values: Values
    are: str | None = None


WINDOWS = tuple(series for series in HEALTHY if series.metric.endswith("_over_steps"))
STATISTICS = tuple(
    series for series in HEALTHY if series.metric.removeprefix("rl_") in catalogue.STATISTIC_HELP
)
COUNTERS = tuple(series for series in HEALTHY if series.metric.endswith("_total"))

RESUMED: Values = {**dict.fromkeys(WINDOWS), **dict.fromkeys(STREAKS, 0)}
"""What is empty right after a run was resumed: its windows; its levels stay."""

BEGUN: Values = dict.fromkeys(STATISTICS)
"""What does not exist while too few steps were logged."""

RESTARTED: Values = dict.fromkeys(COUNTERS, 0)
"""What restarts with an exporter that remembers nothing."""


def limits(rule: Rule) -> list[Case]:
    """Each condition alone, each limit from both sides, each partner missing or NaN, all partners new."""
    conditions = [
        case
        for condition in rule.conditions
        for case in (*_of_condition(condition), *_new(condition), *_ended(rule, condition))
    ]
    silent = [case for name, values in rule.silent.items() for case in _silent(name, values)]
    return [*conditions, *silent, *([] if rule.of_ended else [Case("healthy", {}, fires=False)])]


def _silent(name: str, values: Values) -> Iterator[Case]:
    """Runs that are spared, also while what spares them is not known again."""
    yield Case(name, values, fires=False)
    yield Case(f"{name}: resumed", {**values, **RESUMED}, fires=False)


def _of_condition(condition: Condition) -> Iterator[Case]:
    yield Case(condition.name, condition.sick, fires=True)
    for limit in condition.limits:
        for name, values, fires in limit.cases(condition.sick):
            yield Case(f"{condition.name}: {name}", values, fires)
    for series in (*condition.needs, *condition.once):
        yield Case(f"{condition.name}: without {series}", {**condition.sick, series: None}, fires=False)
        if series in condition.needs and series != STATE:
            yield Case(f"{condition.name}: NaN in {series}", {**condition.sick, series: NAN}, fires=False)
    for series in condition.spares:
        yield Case(
            f"{condition.name}: {series} does not matter", {**condition.sick, series: None}, fires=True
        )


def _new(condition: Condition) -> Iterator[Case]:
    """The run has just begun, was resumed, or is read by another exporter."""
    for name, new in (("just begun", BEGUN), ("resumed", RESUMED), ("restarted", RESTARTED)):
        yield Case(
            f"{condition.name}: {name}", {**condition.sick, **new}, fires=_fires_without(condition, new)
        )


def _fires_without(condition: Condition, new: Values) -> bool:
    return not {*condition.needs, *condition.once} & new.keys()


def _ended(rule: Rule, condition: Condition) -> Iterator[Case]:
    """Nothing is said of what is done; what went wrong before a bad end remains true."""
    if not rule.of_ended:
        yield Case(f"{condition.name}: finished", {**condition.sick, STATE: "finished"}, fires=False)
    if STATE not in condition.needs:
        for state in ("failed", "vanished", "stopped"):
            yield Case(f"{condition.name}: {state}", {**condition.sick, STATE: state}, fires=True)


def still(
    name: str,
    rule: Rule,
    rendered: dict[str, Any],
    cases: Sequence[Case],
    targets: Sequence[Mapping[str, str]] = TARGETS,
) -> Group:
    """Runs that do not change, seen by one exporter or several, looked at once the rule must have decided."""
    after = rule.wait + 12
    reads = _read(rendered)
    series: dict[str, str] = {}
    for case in cases:
        for target in targets:
            series |= samples(case.run, (Phase(0, case.values),), reads, target, until=after)
    fired = [_labels(rendered, case.run) for case in cases if case.fires]
    return Group(name, series, [Moment(after, {rule.alert: fired})])


def _read(rule: dict[str, Any]) -> list[Series]:
    return selectors.read([each["expr"] for each in whole(rule)], HEALTHY)


CHANGE, BACK, FORGOTTEN = 60, 120, 660
"""When runs change, when those interrupted are heard of again, and when those lost are given up. Seconds."""

FOR_EVER = 10**9


class Story(NamedTuple):
    """A run that changes, and the seconds from which and until which the rule fires on it.

    ``twice`` is how another exporter sees it, if one does.
    """

    run: str
    phases: tuple[Phase, ...]
    since: float = FOR_EVER
    until: float = FOR_EVER
    twice: tuple[Phase, ...] = ()


def stories(rule: Rule) -> Iterator[Story]:
    """Runs that turn sick, recover, finish, are resumed, or are not heard of for a minute."""
    sick, wait, ended = rule.conditions[0].sick, rule.wait, CHANGE + rule.keep
    yield from _beginnings(rule.conditions[0], wait, ended)
    yield Story("healthy", (Phase(0, {}),))
    yield Story("healthy, not scraped for a minute", tuple(_interrupted({}, STALE)))
    yield Story("turns sick", (Phase(0, {}), Phase(CHANGE, sick)), CHANGE + wait)
    yield Story("recovers", (Phase(0, sick), Phase(CHANGE, {})), wait, ended)
    yield Story("sick, not scraped for a minute", tuple(_interrupted(sick, STALE)), wait)
    lost = (Phase(0, sick), Phase(CHANGE, sick, STALE))
    yield Story("sick, then never heard of again", lost, wait, FORGOTTEN)
    yield Story("sick, samples missing for a minute", tuple(_interrupted(sick, MISSING)), wait)
    if rule.keep:
        yield Story("healthy, NaN for a minute", tuple(_interrupted({}, NAN)))
        yield Story("sick, NaN for a minute", tuple(_interrupted(sick, NAN)), wait)
    if not rule.of_ended:
        finished = {**sick, STATE: "finished"}
        yield Story("finished", (Phase(0, finished),))
        yield Story("finishes", (Phase(0, sick), Phase(CHANGE, finished)), wait, ended)


def _beginnings(condition: Condition, wait: int, ended: int) -> Iterator[Story]:
    """Runs and exporters that begin, or begin again; `best` and the like are there from the first."""
    sick, nothing = condition.sick, dict.fromkeys(series for series in HEALTHY if series != STATE)
    yield Story("begins, and is sick", (Phase(0, nothing), Phase(CHANGE, sick)), CHANGE + wait)
    yield Story("healthy, resumed", tuple(_for_a_minute({}, RESUMED)))
    yield Story("sick, resumed", tuple(_for_a_minute(sick, RESUMED)), wait)
    yield Story("healthy, counters restart", (Phase(0, {}), Phase(CHANGE, RESTARTED)))
    until = FOR_EVER if _fires_without(condition, RESTARTED) else ended
    again = (Phase(0, sick), Phase(CHANGE, {**sick, **RESTARTED}))
    yield Story("sick, counters restart", again, wait, until)
    both = (Phase(0, {}), Phase(CHANGE, sick))
    yield Story("turns sick, seen twice", both, CHANGE + wait, twice=both)
    lost = (Phase(0, sick), Phase(CHANGE, sick, STALE))
    yield Story("sick, one of two exporters is lost", (Phase(0, sick),), wait, twice=lost)


def _for_a_minute(values: Values, new: Values) -> Iterator[Phase]:
    yield from (Phase(0, values), Phase(CHANGE, {**values, **new}), Phase(BACK, values))


def _interrupted(values: Values, are: str) -> Iterator[Phase]:
    yield from (Phase(0, values), Phase(CHANGE, values, are), Phase(BACK, values))


def over_time(rule: Rule, rendered: dict[str, Any]) -> Group:
    """All stories, looked at shortly before and after whatever happens."""
    reported = list(stories(rule))
    reads = _read(rendered)
    turns = {0, CHANGE, BACK, CHANGE + rule.keep}
    near = {turn + wait + little for turn in turns for wait in (0, rule.wait) for little in (-3, 2)}
    # the two Prometheus differ by one sample in what a range holds
    looks = sorted({*near, FORGOTTEN - 8, FORGOTTEN + 2})
    series: dict[str, str] = {}
    for story in reported:
        series |= samples(story.run, story.phases, reads, until=looks[-1])
        if story.twice:
            series |= samples(story.run, story.twice, reads, OTHER_EXPORTER, until=looks[-1])
    moments = [
        Moment(at, {rule.alert: [_labels(rendered, story.run) for story in reported if _fires(story, at)]})
        for at in looks
        if at > 0
    ]
    # the time since which an alert is active shows that it was never over in between
    active = f'sum(ALERTS_FOR_STATE{{alertname="{rule.alert}",run="sick, not scraped for a minute"}})'
    return Group("over time", series, moments, {(active, BACK + rule.wait + 2): 0.0})


def _fires(story: Story, at: float) -> bool:
    return story.since <= at // INTERVAL * INTERVAL < story.until


def _labels(rendered: Mapping[str, Any], run: str) -> dict[str, str]:
    return {"run": run, **rendered["labels"]}


def samples(
    run: str,
    phases: Sequence[Phase],
    reads: Sequence[Series],
    target: Mapping[str, str] = EXPORTER,
    *,
    until: float,
) -> dict[str, str]:
    """All series of a run, and of its state, in promtool's notation."""
    parts: dict[Series, list[str]] = {}
    ends = [*(phase.since for phase in phases[1:]), until + INTERVAL]
    for phase, end in zip(phases, ends, strict=True):
        count = -int((phase.since - end) // INTERVAL)
        for series, value in _valued(phase, reads).items():
            parts.setdefault(series, []).append(_repeat(value, count))
    return {series.of(run, target): " ".join(words) for series, words in parts.items()}


def _valued(phase: Phase, reads: Sequence[Series]) -> dict[Series, Any]:
    now = {**HEALTHY, **phase.values}
    values: dict[Series, Any] = {series: now[series] for series in reads if series != STATE}
    values |= state_series(now[STATE])
    if phase.are == NAN:
        return {series: value if series.metric == STATE.metric else NAN for series, value in values.items()}
    return {series: phase.are or value for series, value in values.items()}


def _repeat(value: Any, count: int) -> str:
    if value is None or value == MISSING:
        return f"_x{count}"
    if value == STALE:
        return " ".join(["stale", *["_"] * (count - 1)])
    if value == NAN:
        return " ".join([NAN] * count)
    return f"{float(value)!r}+0x{count - 1}"
