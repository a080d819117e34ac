"""Where messages go, and when: the `receivers` and `notify` sections."""

from __future__ import annotations

from pydantic import field_validator, model_validator

from stepwatch.config.errors import NOTHING, Fault
from stepwatch.config.names import ReceiverName
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import PositiveSpan, SentSeverity, Span, Switch
from stepwatch.config.section import Section
from stepwatch.config.ways import WAYS, Mail, Slack, Way, Webhook

# Alertmanager forgets what it has sent after 120 h, and would send everything once more.
MAX_REPEAT = Duration.parse("5d")


class Timing(Section):
    """How long messages of one severity wait for company, and when they are repeated."""

    group_wait: Span
    group_interval: PositiveSpan
    repeat_interval: PositiveSpan

    @model_validator(mode="after")
    def _repeat_after_group(self) -> Timing:
        if not self.group_interval <= self.repeat_interval <= MAX_REPEAT:
            raise Fault(
                "cannot be kept by Alertmanager",
                expected=f"from group_interval ({self.group_interval}) to {MAX_REPEAT}",
                cure="write a duration in between",
                at=("repeat_interval",),
                value=self.repeat_interval,
            )
        return self


class CriticalTiming(Timing):
    """Defaults of what wakes people."""

    group_wait: Span = Duration.parse("2s")
    group_interval: PositiveSpan = Duration.parse("15s")
    repeat_interval: PositiveSpan = Duration.parse("4h")


class WarningTiming(Timing):
    """Defaults of what can wait for the morning."""

    group_wait: Span = Duration.parse("10s")
    group_interval: PositiveSpan = Duration.parse("1m")
    repeat_interval: PositiveSpan = Duration.parse("12h")


class Notify(Section):
    """Pace of the messages."""

    keep_firing_for: Span = Duration.parse("10m")
    critical: CriticalTiming = CriticalTiming()
    warning: WarningTiming = WarningTiming()


class Receiver(Section):
    """Someone or something that is told."""

    name: ReceiverName
    webhook: Webhook | None = None
    mail: Mail | None = None
    slack: Slack | None = None
    severities: tuple[SentSeverity, ...] = ("critical", "warning")
    send_resolved: Switch = True

    @property
    def way(self) -> Way:
        """How it is told."""
        return next(way for way in (self.webhook, self.mail, self.slack) if way)

    @model_validator(mode="after")
    def _one_way(self) -> Receiver:
        ways = [key for key in WAYS if getattr(self, key)]
        if len(ways) != 1:
            raise Fault(
                f"names {' and '.join(ways) or 'no way to tell it'}",
                value=NOTHING,
                expected=f"one of {', '.join(WAYS)}",
                cure="write another receiver, with a name of its own, for each further way"
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
                cure="write each once; a receiver that gets nothing can be deleted",
            )
        return value
