"""Where messages go, and when: `receivers`, `notify`, and for a dead stack `deadman`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import create_model, field_validator, model_validator

from stepwatch.config.hours import When
from stepwatch.config.integrations import (
    Apprise,
    DingTalk,
    Feishu,
    Mail,
    Robot,
    Slack,
    Webhook,
    WeCom,
)
from stepwatch.config.receiver_kinds import KINDS, Passed, block
from stepwatch.schema.errors import NOTHING, Fault, quoted
from stepwatch.schema.scalars import (
    TOPICS,
    Duration,
    PositiveSpan,
    ReceiverName,
    RunGlob,
    SentSeverity,
    Span,
    Switch,
    Topic,
    alternation,
)
from stepwatch.schema.section import Checked, Section, default, needed

Integration = Webhook | Mail | Slack | Robot | Passed
"""A way to notify: what Alertmanager's metrics and messages call it, its secrets, and its settings."""

SHORT_FORMS = ("webhook", "mail", "slack", "feishu", "dingtalk", "wecom", "apprise")
"""The keys of a receiver that are ours; those of `KINDS` are Alertmanager's."""

_MATCHER = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\\n]|\\.)*)"\s*')


@dataclass(frozen=True)
class Matcher:
    """A condition on a label, as Alertmanager reads it."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quoted(self.value)}"

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether it fits an alert; an absent label is an empty one."""
        value = labels.get(self.label, "")
        same = (
            re.fullmatch(self.value, value, re.DOTALL) is not None
            if "~" in self.operator
            else value == self.value
        )
        return same != self.operator.startswith("!")


def to_matcher(value: Any) -> Matcher:
    """Return the matcher that a text is. Raises Fault if it is invalid."""
    if isinstance(value, Matcher):
        return value
    found = _MATCHER.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise Fault(
            "is not a matcher",
            expected="a label, one of = != =~ !~, and a value in double quotes, such as 'team=\"rl\"'",
            fix="write it so, the whole in single quotes",
        )
    matcher = Matcher(found[1], found[2], re.sub(r"\\(.)", r"\1", found[3]))
    if "~" in matcher.operator:
        try:
            re.compile(matcher.value)
        except re.error as error:
            raise Fault(
                f"is not a regular expression ({error})", expected="one of RE2", fix="correct it"
            ) from error
    return matcher


# Alertmanager forgets what it has sent after 120 h, and would send everything once more.
MAX_REPEAT = Duration.parse("5d")


class Timing(Section):
    """How long messages of one severity wait for company, and when they are repeated."""

    group_wait: Span = needed(
        "How long the first notification waits for other alerts of the same kind and run."
    )
    group_interval: PositiveSpan = needed(
        "The shortest time between two notifications of one group, when an alert joins it or resolves."
    )
    repeat_interval: PositiveSpan = needed(
        "How often a firing alert is sent again. At most 5d (Alertmanager's memory)."
    )

    @model_validator(mode="after")
    def _repeat_after_group(self) -> Timing:
        if not self.group_interval <= self.repeat_interval <= MAX_REPEAT:
            raise Fault(
                "cannot be kept by Alertmanager",
                expected=f"from group_interval ({self.group_interval}) to {MAX_REPEAT}",
                fix="write a duration in between",
                at=("repeat_interval",),
                value=self.repeat_interval,
            )
        return self


class CriticalTiming(Timing):
    """Defaults of what wakes people."""

    group_wait: Span = default(
        Duration.parse("2s"),
        "At most a few seconds: the notification of a bad step must be sent within 15 s.",
    )
    group_interval: PositiveSpan = default(
        Duration.parse("15s"),
        "The shortest time between two notifications of one group, when an alert joins it or resolves.",
    )
    repeat_interval: PositiveSpan = default(
        Duration.parse("4h"), "How often a firing alert is sent again. At most 5d (Alertmanager's memory)."
    )


class WarningTiming(Timing):
    """Defaults of what can wait for the morning."""

    group_wait: Span = default(
        Duration.parse("10s"),
        "How long the first notification waits for other alerts of the same kind and run.",
    )
    group_interval: PositiveSpan = default(
        Duration.parse("1m"), "The shortest time between two notifications of one group."
    )
    repeat_interval: PositiveSpan = default(Duration.parse("12h"), "How often a firing alert is sent again.")


class Notify(Section):
    """Pace of the messages."""

    keep_firing_for: Span = default(
        Duration.parse("10m"),
        "How long an alert keeps firing after its condition ended, so that a curve that crosses its limit "
        "back and forth, or a missed scrape, is one alert and not ten. Affects the rules about runs, GPUs, "
        "rollout engines, Ray and machines.",
    )
    critical: CriticalTiming = default(CriticalTiming(), "Timing of critical alerts: sent within seconds.")
    warning: WarningTiming = default(WarningTiming(), "Timing of warnings, which can wait for the morning.")


class _Receiver(Section):
    name: ReceiverName = needed("Its name; unique. `make test-alert TO=name` sends a test notification.")
    webhook: Webhook | None = default(None, "An HTTP endpoint that takes Alertmanager's JSON by POST.")
    mail: Mail | None = default(None, "Mail, via an SMTP server.")
    slack: Slack | None = default(None, "A Slack channel, via an incoming webhook.")
    feishu: Feishu | None = default(None, "A Feishu or Lark group, via a custom bot (docs/notifications.md).")
    dingtalk: DingTalk | None = default(None, "A DingTalk group, via a custom robot.")
    wecom: WeCom | None = default(None, "A WeCom group, via its robot.")
    apprise: Apprise | None = default(None, "A service that Apprise supports.")


_PASSED: dict[str, Any] = {
    kind.key: (
        Annotated[Passed | None, block(kind)],
        default(
            None,
            f"{kind.title}, as a list of one block in Alertmanager's own form."
            + (f" Alertmanager {kind.since[0]}.{kind.since[1]} or later." if kind.since[1] > 25 else ""),
        ),
    )
    for kind in KINDS.values()
}
_Passing: Any = create_model("_Passing", __base__=_Receiver, **_PASSED)


class Receiver(_Passing):
    """Someone or something that gets notifications."""

    severities: tuple[SentSeverity, ...] = default(
        ("critical", "warning"), "The severities it gets; info is shown only on the pages."
    )
    topics: tuple[Topic, ...] = default(
        (), "Only alerts about these: " + ", ".join(TOPICS) + ". Empty: all. stack: Stepwatch itself."
    )
    runs: tuple[RunGlob, ...] = default(
        (),
        "Only alerts about runs whose names match one of these patterns, such as ppo/*. Empty: all alerts.",
    )
    matchers: tuple[Annotated[Matcher, Checked(to_matcher)], ...] = default(
        (), "Only alerts that match all of these, such as 'cluster=\"a\"', in Alertmanager's form."
    )
    when: When | None = default(
        None,
        "Only within these hours of a week (others: time_intervals). When they begin, alerts that still fire "
        "are sent. null: always.",
    )
    active_time_intervals: tuple[ReceiverName, ...] = default(
        (), "Only within these entries of time_intervals (any of them). Empty: always."
    )
    mute_time_intervals: tuple[ReceiverName, ...] = default(
        (), "Never within these entries of time_intervals (any of them)."
    )
    send_resolved: Switch = default(True, "Also notify when an alert resolves.")

    @property
    def integration(self) -> Integration:
        """How it is notified."""
        found: Integration = next(filter(None, (getattr(self, key) for key in (*SHORT_FORMS, *KINDS))))
        return found

    @property
    def robot(self) -> Robot | None:
        """What the bridge delivers to, ``None`` if Alertmanager does it itself."""
        return self.integration if isinstance(self.integration, Robot) else None

    @property
    def conditions(self) -> tuple[Matcher, ...]:
        """What an alert must fit, besides its severity."""
        topics = (Matcher("topic", "=~", "|".join(self.topics)),) if self.topics else ()
        runs = (Matcher("run", "=~", alternation(self.runs)),) if self.runs else ()
        return (*topics, *runs, *self.matchers)

    @property
    def has_hours(self) -> bool:
        """Whether there are times at which it is not notified."""
        return bool(self.when or self.active_time_intervals or self.mute_time_intervals)

    @model_validator(mode="after")
    def _one_type(self) -> Receiver:
        types = [key for key in (*SHORT_FORMS, *KINDS) if getattr(self, key)]
        if len(types) != 1:
            raise Fault(
                f"names {' and '.join(types) or 'nothing to notify'}",
                value=NOTHING,
                expected=f"one of {', '.join(SHORT_FORMS)}, or a block of Alertmanager's own, such as "
                "pagerduty_configs",
                fix="write another receiver, with a name of its own, for each further type"
                if types
                else "write one of these with its keys below it",
            )
        return self

    @model_validator(mode="after")
    def _hours_of_one_form(self) -> Receiver:
        if self.when and self.active_time_intervals:
            raise Fault(
                "is given beside active_time_intervals",
                at=("when",),
                value=NOTHING,
                expected="one of the two",
                fix="name these hours in time_intervals, and delete when",
            )
        return self

    @field_validator("severities")
    @classmethod
    def _some_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) < len(value):
            raise Fault(
                "is empty" if not value else "names a severity twice",
                expected="critical, warning, or both",
                fix="write each once; a receiver that gets nothing can be deleted",
            )
        return value


MAX_EVERY = Duration.parse("1d")


class Deadman(Webhook):
    """A checker outside, which notifies people once the pings of this stack stop; none without a URL."""

    every: PositiveSpan = default(
        Duration.parse("1m"),
        "The interval of the pings, at most 1d. Set the service's grace to 5m more: without Prometheus, "
        "Alertmanager pings for up to 3m more.",
    )

    @property
    def enabled(self) -> bool:
        """Whether there is a checker."""
        return bool(self.url or self.url_file)

    @model_validator(mode="after")
    def _one_url(self) -> Deadman:
        if (self.url and self.url_file) or (self.credentials_file and not self.enabled):
            raise Fault(
                "names two URLs" if self.enabled else "names no URL",
                value=NOTHING,
                expected="url or url_file, and not both; neither, if there is no checker",
                fix="write url_file: with the path of a file that holds the URL",
            )
        return self

    @field_validator("every")
    @classmethod
    def _daily(cls, value: Duration) -> Duration:
        if value > MAX_EVERY:
            raise Fault(
                f"is longer than {MAX_EVERY}",
                expected=f"at most {MAX_EVERY}",
                fix="write a shorter one, such as 1m",
            )
        return value

    @property
    def pace(self) -> dict[str, str]:
        """How Alertmanager repeats what it sends."""
        # It looks at a group once in group_interval, and sends what is older than repeat_interval. Were both
        # `every`, each second look would come a moment too early.
        half = Duration(max(1, self.every.milliseconds // 2))
        quarters = Duration(max(1, self.every.milliseconds * 3 // 4))
        return {"group_wait": "0s", "group_interval": str(half), "repeat_interval": str(quarters)}
