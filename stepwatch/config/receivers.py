"""Where messages go, and when: the `receivers` and `notify` sections."""

from __future__ import annotations

from pydantic import field_validator, model_validator

from stepwatch.config.errors import NOTHING, Fault
from stepwatch.config.names import ReceiverName
from stepwatch.config.places import SecretFile, WebhookUrl
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import PositiveSpan, SentSeverity, Span, Switch
from stepwatch.config.section import Section

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


class Webhook(Section):
    """An HTTP endpoint that takes Alertmanager's JSON; its URL here or, if secret, in a file."""

    url: WebhookUrl | None = None
    url_file: SecretFile | None = None
    credentials_file: SecretFile | None = None

    @model_validator(mode="after")
    def _one_url(self) -> Webhook:
        if (self.url is None) == (self.url_file is None):
            raise Fault(
                "names " + ("no URL" if self.url is None else "two URLs"),
                value=NOTHING,
                expected="url or url_file, and not both",
                cure="write url: http://host:port/path, or url_file: if the URL is a secret",
            )
        return self


class Receiver(Section):
    """Someone or something that is told."""

    name: ReceiverName
    webhook: Webhook
    severities: tuple[SentSeverity, ...] = ("critical", "warning")
    send_resolved: Switch = True

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
