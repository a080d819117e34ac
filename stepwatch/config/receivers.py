"""Where messages go, and when: the `receivers` and `notify` sections."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.names import LabelValue, ReceiverName
from stepwatch.schema.path_types import (
    Channel,
    MailAddress,
    MailServer,
    SecretFile,
    SecretUrlFile,
    WebhookUrl,
)
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import PositiveSpan, SentSeverity, Span, Switch
from stepwatch.schema.section import Section, default, needed

# The integrations of a receiver: webhook, mail, Slack, and what the notifier delivers to.
#
# Of each, ``label`` is what Alertmanager's metrics call it, and ``title`` what messages do.
_TLS_FROM_THE_START = ":465"


class Webhook(Section):
    """An HTTP endpoint that takes Alertmanager's JSON; its URL here or, if secret, in a file."""

    label: ClassVar[str] = "webhook"
    title: ClassVar[str] = "webhook (HTTP)"

    url: WebhookUrl | None = default(None, "Its URL, if it holds no secret.")
    url_file: SecretUrlFile | None = default(
        None, "A file with its URL, if that holds a secret (Alertmanager 0.26 or later)."
    )
    credentials_file: SecretFile | None = default(None, "A file with a bearer token.")

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The files that hold its secrets."""
        return tuple(filter(None, (self.url_file, self.credentials_file)))

    @model_validator(mode="after")
    def _one_url(self) -> Webhook:
        if (self.url is None) == (self.url_file is None):
            raise Fault(
                "names " + ("no URL" if self.url is None else "two URLs"),
                value=NOTHING,
                expected="url or url_file, and not both",
                fix="write url: http://host:port/path, or url_file: if the URL is a secret",
            )
        return self


class Mail(Section):
    """Mails, handed to a mail server that takes them from this machine."""

    label: ClassVar[str] = "email"
    title: ClassVar[str] = "mail (SMTP)"

    to: tuple[MailAddress, ...] = needed("The addresses.")
    from_: MailAddress = Field(alias="from", description="The sender's address.")
    smarthost: MailServer = needed("The mail server, host:port.")
    username: LabelValue | None = default(
        None, "The login, with password_file. Leave out both if the server needs none."
    )
    password_file: SecretFile | None = default(None, "A file with the password.")
    tls: Switch = default(True, "false: an unencrypted server in a trusted network.")

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The file that holds its password, if it has one."""
        return (self.password_file,) if self.password_file else ()

    @property
    def starttls(self) -> bool:
        """Whether encryption must be asked for; at port 465 it is there from the first byte."""
        return self.tls and not self.smarthost.endswith(_TLS_FROM_THE_START)

    @field_validator("to")
    @classmethod
    def _some_address(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise Fault("is empty", expected="one address or more", fix="write who gets the mail")
        return value

    @model_validator(mode="after")
    def _whole_login(self) -> Mail:
        if (self.username is None) != (self.password_file is None):
            has, lacks = ("username", "password_file")[:: 1 if self.username else -1]
            raise Fault(
                f"has {has} without {lacks}",
                value=NOTHING,
                expected="both, or neither for a server that wants no login",
                fix=f"add {lacks}, or delete {has}",
            )
        return self

    @model_validator(mode="after")
    def _password_in_secret(self) -> Mail:
        if not self.tls and (self.username or self.smarthost.endswith(_TLS_FROM_THE_START)):
            why = "would send the password unencrypted" if self.username else "contradicts port 465"
            raise Fault(
                why,
                at=("tls",),
                value=self.tls,
                expected="true with a login or at port 465, which always speaks TLS",
                fix="delete tls: false, or the login",
            )
        return self


class Slack(Section):
    """A Slack channel, by an incoming webhook; its URL is a secret, in a file."""

    label: ClassVar[str] = "slack"
    title: ClassVar[str] = "Slack"

    url_file: SecretUrlFile = needed("A file with the URL of an incoming webhook.")
    channel: Channel | None = default(None, '"#name". null: the webhook\'s own.')

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The file that holds its URL."""
        return (self.url_file,)


class Robot(Section):
    """What the notifier delivers to: Alertmanager hands it over as a webhook."""

    kind: ClassVar[str]
    label: ClassVar[str] = "webhook"
    title: ClassVar[str]

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The files that hold its URL, and what it signs with."""
        return tuple(filter(None, (getattr(self, "url_file", None), getattr(self, "secret_file", None))))


class Feishu(Robot):
    """A custom bot of a Feishu or Lark group; its URL is a secret, in a file."""

    kind: ClassVar[str] = "feishu"
    title: ClassVar[str] = "Feishu"

    url_file: SecretUrlFile = needed("A file with the bot's webhook URL.")
    secret_file: SecretFile | None = default(None, "A file with the secret of its signature verification.")
    keyword: LabelValue | None = default(
        None, "One of its custom keywords, which messages that lack it get at their end."
    )


class DingTalk(Robot):
    """A custom robot of a DingTalk group; its URL is a secret, in a file."""

    kind: ClassVar[str] = "dingtalk"
    title: ClassVar[str] = "DingTalk"

    url_file: SecretUrlFile = needed("A file with the robot's webhook URL.")
    secret_file: SecretFile | None = default(None, "A file with the secret that it signs with (SEC...).")
    keyword: LabelValue | None = default(
        None, "One of its custom keywords, which messages that lack it get at their end."
    )


class WeCom(Robot):
    """A robot of a WeCom group; its URL is a secret, in a file."""

    kind: ClassVar[str] = "wecom"
    title: ClassVar[str] = "WeCom"

    url_file: SecretUrlFile = needed("A file with the robot's webhook URL.")


class Apprise(Robot):
    """A service that Apprise knows; its URL, which holds a secret, in a file."""

    kind: ClassVar[str] = "apprise"
    title: ClassVar[str] = "Apprise"

    url_file: SecretFile = needed("A file with the Apprise URL, such as bark://... or ntfys://...")


Integration = Webhook | Mail | Slack | Feishu | DingTalk | WeCom | Apprise
TYPES = ("webhook", "mail", "slack", "feishu", "dingtalk", "wecom", "apprise")


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
    feishu: Feishu | None = default(None, "A Feishu or Lark group, by a custom bot (docs/notifications.md).")
    dingtalk: DingTalk | None = default(None, "A DingTalk group, by a custom robot.")
    wecom: WeCom | None = default(None, "A WeCom group, by its robot.")
    apprise: Apprise | None = default(None, "One of the services that Apprise knows.")
    severities: tuple[SentSeverity, ...] = default(
        ("critical", "warning"), "What it receives; info is shown on the pages only."
    )
    send_resolved: Switch = default(True, "Also notify when an alert resolves.")

    @property
    def integration(self) -> Integration:
        """The type of the receiver with its keys."""
        found: Integration = next(filter(None, (getattr(self, key) for key in TYPES)))
        return found

    @property
    def robot(self) -> Robot | None:
        """What the notifier delivers to, ``None`` if Alertmanager does it itself."""
        return self.integration if isinstance(self.integration, Robot) else None

    @model_validator(mode="after")
    def _one_type(self) -> Receiver:
        types = [key for key in TYPES if getattr(self, key)]
        if len(types) != 1:
            raise Fault(
                f"names {' and '.join(types) or 'nothing to notify'}",
                value=NOTHING,
                expected=f"one of {', '.join(TYPES)}",
                fix="write another receiver, with a name of its own, for each further type"
                if types
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
