"""Where messages go, and when: the `receivers` and `notify` sections."""

from __future__ import annotations

from pydantic import field_validator, model_validator

from stepwatch.config.receiver_types import WAYS, Mail, Slack, Way, Webhook
from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.names import ReceiverName
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import PositiveSpan, SentSeverity, Span, Switch
from stepwatch.schema.section import Section, default, needed

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
        Duration.parse("2s"), "At most a few seconds: a bad step should be on its way within 15 s."
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
        "How long an alert stays after its condition ended, so that a curve that crosses its "
        "limit back and forth, or a missed scrape, is one alert and not ten. Affects the "
        "rules on runs, GPUs, rollout engines, Ray and machines.",
    )
    critical: CriticalTiming = default(CriticalTiming(), "What wakes people: sent within seconds.")
    warning: WarningTiming = default(WarningTiming(), "What can wait for the morning.")


class Receiver(Section):
    """Someone or something that gets notifications."""

    name: ReceiverName = needed("Its name, each once; `make test-alert TO=name` sends a test notification.")
    webhook: Webhook | None = default(None, "An HTTP endpoint that takes Alertmanager's JSON by POST.")
    mail: Mail | None = default(None, "Mail, through a mail server.")
    slack: Slack | None = default(None, "A Slack channel, by an incoming webhook.")
    severities: tuple[SentSeverity, ...] = default(
        ("critical", "warning"), "What it receives; info is shown on the pages only."
    )
    send_resolved: Switch = default(True, "Also notify when an alert resolves.")

    @property
    def way(self) -> Way:
        """How it is notified."""
        return next(way for way in (self.webhook, self.mail, self.slack) if way)

    @model_validator(mode="after")
    def _one_way(self) -> Receiver:
        ways = [key for key in WAYS if getattr(self, key)]
        if len(ways) != 1:
            raise Fault(
                f"names {' and '.join(ways) or 'no way to tell it'}",
                value=NOTHING,
                expected=f"one of {', '.join(WAYS)}",
                fix="write another receiver, with a name of its own, for each further way"
                if ways
                else "write one of these with its keys below it",
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
