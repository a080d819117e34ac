"""How a receiver is notified: the short forms of config.yaml, as Alertmanager's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import quote

from pydantic import Field, model_validator

from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.path_types import (
    Channel,
    MailAddress,
    MailServer,
    SecretFile,
    SecretUrlFile,
    WebhookUrl,
)
from stepwatch.schema.scalars import LabelValue, Switch
from stepwatch.schema.section import Section, default, needed, not_empty, require_both

if TYPE_CHECKING:
    from stepwatch.config.deployment import Deployment

_TLS_FROM_THE_START = ":465"

NO_REDIRECTS = {"follow_redirects": False}
"""A followed redirect turns the POST into a GET: lost, yet counted as delivered."""

SLACK_TEXTS: dict[str, Any] = {
    "color": '{{ template "stepwatch.colour" . }}',
    "fallback": '{{ template "slack.title" . }}',
    "title": '{{ template "slack.title" . }}',
    "title_link": '{{ template "stepwatch.dashboard_url" index .Alerts 0 }}',
    "text": '{{ template "slack.text" . }}',
    "username": "Stepwatch",
}

MAIL_TEXTS: dict[str, Any] = {
    "headers": {"Subject": '{{ template "stepwatch.title" . }}'},
    "html": '{{ template "mail.html" . }}',
    "text": '{{ template "stepwatch.text" . }}',
}


class Webhook(Section):
    """An HTTP endpoint that takes Alertmanager's JSON; its URL here or, if secret, in a file."""

    label: ClassVar[str] = "webhook"
    title: ClassVar[str] = "webhook (HTTP)"
    block: ClassVar[str] = "webhook_configs"

    url: WebhookUrl | None = default(None, "Its URL, if it holds no secret.")
    url_file: SecretUrlFile | None = default(
        None, "A file with its URL, if that holds a secret (Alertmanager 0.26 or later)."
    )
    credentials_file: SecretFile | None = default(None, "A file with a bearer token.")

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The files that hold its secrets."""
        return tuple(filter(None, (self.url_file, self.credentials_file)))

    def settings(self, _: str, reached: Deployment) -> dict[str, Any]:
        """Return what Alertmanager, at ``reached``, needs of a receiver, but for ``send_resolved``."""
        where = (
            {"url_file": reached.file(self.url_file)}
            if self.url_file
            else {"url": reached.url(self.url or "")}
        )
        login = self.credentials_file
        known = {"authorization": {"credentials_file": reached.file(login)}} if login else {}
        return {**where, "http_config": {**known, **NO_REDIRECTS}}

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
    block: ClassVar[str] = "email_configs"

    to: Annotated[tuple[MailAddress, ...], not_empty("one address or more", "write the recipients")] = needed(
        "The recipients' addresses."
    )
    from_: MailAddress = Field(alias="from", description="The sender's address.")
    smarthost: MailServer = needed("The mail server, host:port.")
    username: LabelValue | None = default(
        None, "The login, with password_file. Omit both if the server needs none."
    )
    password_file: SecretFile | None = default(None, "A file with the password.")
    tls: Switch = default(True, "false: no encryption, for a server in a trusted network.")

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The file that holds its password, if it has one."""
        return (self.password_file,) if self.password_file else ()

    @property
    def starttls(self) -> bool:
        """Whether encryption must be asked for; at port 465 it is there from the first byte."""
        return self.tls and not self.smarthost.endswith(_TLS_FROM_THE_START)

    def settings(self, _: str, reached: Deployment) -> dict[str, Any]:
        """Return what Alertmanager, at ``reached``, needs of a receiver, but for ``send_resolved``."""
        login = (
            {"auth_username": self.username, "auth_password_file": reached.file(self.password_file)}
            if self.password_file
            else {}
        )
        return {
            "to": ", ".join(self.to),
            "from": self.from_,
            "smarthost": reached.target(self.smarthost),
            **login,
            "require_tls": self.starttls,
            **MAIL_TEXTS,
        }

    @model_validator(mode="after")
    def _whole_login(self) -> Mail:
        expected = "both, or neither for a server that wants no login"
        require_both(self, ("username", "password_file"), expected)
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
    block: ClassVar[str] = "slack_configs"

    url_file: SecretUrlFile = needed("A file with the URL of an incoming webhook.")
    channel: Channel | None = default(None, '"#name". null: the webhook\'s default.')

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The file that holds its URL."""
        return (self.url_file,)

    def settings(self, _: str, reached: Deployment) -> dict[str, Any]:
        """Return what Alertmanager, at ``reached``, needs of a receiver, but for ``send_resolved``."""
        return {
            "api_url_file": reached.file(self.url_file),
            **({"channel": self.channel} if self.channel else {}),
            "http_config": dict(NO_REDIRECTS),
            **SLACK_TEXTS,
        }


class Robot(Section):
    """What the bridge delivers to: Alertmanager hands it over as a webhook."""

    kind: ClassVar[str]
    label: ClassVar[str] = "webhook"
    title: ClassVar[str]
    block: ClassVar[str] = "webhook_configs"

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The files that hold its URL, and what it signs with."""
        return tuple(filter(None, (getattr(self, "url_file", None), getattr(self, "secret_file", None))))

    def settings(self, receiver: str, reached: Deployment) -> dict[str, Any]:
        """Return what Alertmanager, at ``reached``, needs of a receiver, but for ``send_resolved``."""
        return {
            "url": f"http://{reached.address('bridge')}/alerts/{quote(receiver, safe='')}",
            "http_config": {
                "basic_auth": {"username": "internal", "password_file": reached.password_file},
                **NO_REDIRECTS,
            },
        }


class Feishu(Robot):
    """A custom bot of a Feishu or Lark group; its URL is a secret, in a file."""

    kind: ClassVar[str] = "feishu"
    title: ClassVar[str] = "Feishu"

    url_file: SecretUrlFile = needed("A file with the bot's webhook URL.")
    secret_file: SecretFile | None = default(None, "A file with the secret of its signature verification.")
    keyword: LabelValue | None = default(
        None, "One of its custom keywords, appended to messages that lack it."
    )


class DingTalk(Robot):
    """A custom robot of a DingTalk group; its URL is a secret, in a file."""

    kind: ClassVar[str] = "dingtalk"
    title: ClassVar[str] = "DingTalk"

    url_file: SecretUrlFile = needed("A file with the robot's webhook URL.")
    secret_file: SecretFile | None = default(None, "A file with the secret that signs its messages (SEC...).")
    keyword: LabelValue | None = default(
        None, "One of its custom keywords, appended to messages that lack it."
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
