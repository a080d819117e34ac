"""Alertmanager's own integrations, passed through; what amtool does not know of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationInfo

from exporter import secret_shapes
from stepwatch.config.integrations import MAIL_TEXTS, NO_REDIRECTS, SLACK_TEXTS
from stepwatch.schema.errors import NOTHING, Fault, Faults, KeyPath, SecretFault
from stepwatch.schema.path_types import check_secret, check_shown, is_url, to_path
from stepwatch.schema.section import Checked

if TYPE_CHECKING:
    from stepwatch.config.deployment import Deployment

Version = tuple[int, int, int]

_TITLE = '{{ template "stepwatch.title" . }}'
_TEXT = '{{ template "stepwatch.text" . }}'
_BRIEF = '{{ template "brief.text" . }}'
_MARKDOWN_TITLE = '{{ template "markdown.title" . }}'
_MARKDOWN = '{{ template "markdown.text" . }}'
# Amazon refuses a subject of 100 characters or more, and at first took only ASCII: English in each language.
_ASCII = 'reReplaceAll "[^ -~]" "?"'
_SUBJECT = (
    '{{ if eq .Status "resolved" }}Resolved: {{ end }}'
    f'{{{{ or .CommonLabels.alertname "Several alerts" | printf "%.40s" | {_ASCII} }}}}'
    f'{{{{ with .CommonLabels.run }}}}  {{{{ printf "%.40s" . | {_ASCII} }}}}{{{{ end }}}}'
)
_DASHBOARD = '{{ template "stepwatch.dashboard_url" index .Alerts 0 }}'


@dataclass(frozen=True)
class Kind:
    """An integration of Alertmanager: ``<label>_configs``, since which version, and what it holds by keys."""

    label: str
    title: str
    texts: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    since: Version = (0, 25, 0)
    newer: Mapping[str, Version] = field(default_factory=dict)
    http: bool = True

    @property
    def key(self) -> str:
        """Its key in a receiver."""
        return f"{self.label}_configs"


def _v(minor: int) -> Version:
    return (0, minor, 0)


_PLAIN = {"title": _TITLE, "text": _TEXT}

KINDS = {
    kind.key: kind
    for kind in (
        Kind(
            "slack",
            "Slack",
            SLACK_TEXTS,
            ("api_url", "app_token"),
            newer={"app_token_file": _v(30), "app_url": _v(30), "timeout": _v(30), "message_text": _v(31)},
        ),
        Kind(
            "email",
            "mail (SMTP)",
            MAIL_TEXTS,
            ("auth_password", "auth_secret"),
            newer={"threading": _v(30), "auth_secret_file": _v(31), "force_implicit_tls": _v(31)},
            http=False,
        ),
        Kind("webhook", "webhook (HTTP)", newer={"url_file": _v(26), "timeout": _v(28), "payload": _v(32)}),
        Kind(
            "pagerduty",
            "PagerDuty",
            {
                "description": _TITLE,
                "severity": '{{ template "pagerduty.severity" . }}',
                "client": "Stepwatch",
                "client_url": _DASHBOARD,
                # Alertmanager's own details hold every label; from 0.30 on it takes these for templates.
                "details": {
                    "text": '{{ template "pagerduty.text" . }}',
                    "firing": "{{ .Alerts.Firing | len }}",
                    "resolved": "{{ .Alerts.Resolved | len }}",
                },
            },
            ("routing_key", "service_key"),
            newer={"timeout": _v(30)},
        ),
        Kind(
            "telegram",
            "Telegram",
            # Not its HTML or Markdown: a message that is cut off in the middle of a tag is refused.
            {"message": f"{_TITLE}\n{_BRIEF}", "parse_mode": ""},
            ("bot_token",),
            newer={"bot_token_file": _v(26), "message_thread_id": _v(26), "chat_id_file": _v(31)},
        ),
        Kind(
            "discord",
            "Discord",
            {"title": _MARKDOWN_TITLE, "message": _MARKDOWN},
            ("webhook_url",),
            newer={"webhook_url_file": _v(28), "content": _v(28), "username": _v(28), "avatar_url": _v(28)},
        ),
        Kind(
            "msteams",
            "Teams (connector)",
            {"title": _MARKDOWN_TITLE, "text": _MARKDOWN},
            ("webhook_url",),
            since=_v(26),
            newer={"webhook_url_file": _v(27), "summary": _v(27)},
        ),
        Kind(
            "msteamsv2",
            "Teams",
            {"title": _MARKDOWN_TITLE, "text": _MARKDOWN},
            ("webhook_url",),
            since=_v(28),
        ),
        Kind("opsgenie", "Opsgenie", {"message": _TITLE, "description": _TEXT}, ("api_key",)),
        Kind(
            "pushover",
            "Pushover",
            {"title": _TITLE, "message": _BRIEF, "url": _DASHBOARD},
            ("token", "user_key"),
            newer={
                "token_file": _v(26),
                "user_key_file": _v(26),
                "device": _v(26),
                "ttl": _v(27),
                "monospace": _v(29),
            },
        ),
        Kind(
            "wechat",
            "WeChat",
            {"message": f"{_TITLE}\n{_BRIEF}"},
            ("api_secret",),
            newer={"api_secret_file": _v(31)},
        ),
        Kind(
            "victorops",
            "VictorOps",
            {"entity_display_name": _TITLE, "state_message": _TEXT, "monitoring_tool": "Stepwatch"},
            ("api_key",),
        ),
        Kind("webex", "Webex", {"message": f"{_MARKDOWN_TITLE}\n\n{_MARKDOWN}"}),
        Kind("sns", "Amazon SNS", {"subject": _SUBJECT, "message": f"{_TITLE}\n{_TEXT}"}),
        Kind(
            "jira",
            "Jira",
            {"summary": _TITLE, "description": _TEXT},
            since=_v(28),
            newer={"api_type": _v(29)},
        ),
        Kind(
            "rocketchat",
            "Rocket.Chat",
            {"title": _TITLE, "title_link": _DASHBOARD, "text": _MARKDOWN},
            ("token", "token_id"),
            since=_v(28),
        ),
        Kind("incidentio", "incident.io", {}, ("alert_source_token",), since=_v(29)),
        Kind(
            "mattermost",
            "Mattermost",
            {"text": f"**{_MARKDOWN_TITLE}**\n\n{_MARKDOWN}", "username": "Stepwatch"},
            ("webhook_url",),
            since=_v(30),
        ),
    )
}
"""By their keys in a receiver."""

_HTTP_SECRETS = {
    "credentials": "credentials_file",
    "password": "password_file",
    "bearer_token": "bearer_token_file",
    "client_secret": "client_secret_file",
    "key": "key_file",
    "secrets": "files",
}
"""Keys below http_config, and of mail below tls_config, by what is written in their place."""

_HTTP_NEWER = {
    "http_headers": _v(28),
    "proxy_from_environment": _v(26),
    "no_proxy": _v(26),
    "proxy_connect_header": _v(26),
}
"""Files that are no secret of one line."""


@dataclass(frozen=True)
class Passed:
    """An integration as the user wrote it: checked for secrets, its files as absolute paths."""

    kind: Kind
    written: Mapping[str, Any] = field(hash=False)

    @property
    def label(self) -> str:
        """What Alertmanager's metrics call it."""
        return self.kind.label

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.kind.title

    @property
    def block(self) -> str:
        """The key of Alertmanager's receivers that it is written below."""
        return self.kind.key

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The files that hold its secrets."""
        return tuple(
            value
            for path, value in leaves(self.written)
            if isinstance(value, Path) and path[-1] not in ("ca_file", "cert_file")
        )

    def settings(self, _: str, reached: Deployment) -> dict[str, Any]:
        """Return what Alertmanager needs of a receiver; holds ``send_resolved`` if the user wrote it."""
        texts = dict(self.kind.texts)
        if self.written.get("parse_mode"):
            texts.pop("message", None)
        if self.label == "jira" and not self.written.get("resolve_transition"):
            # Alertmanager would look for a transition without a name, and fail at each end of an alert.
            texts["send_resolved"] = False
        http = {"http_config": NO_REDIRECTS} if self.kind.http else {}
        return _merged({**http, **texts}, _reached(self.written, reached))

    def needs(self) -> Iterator[tuple[KeyPath, Version]]:
        """Yield where it uses what not every Alertmanager has, and from which version on there is that."""
        yield (), self.kind.since
        for path, _ in leaves(self.written):
            if not path:
                continue
            # A key of the integration itself, or one of its HTTP client, at whatever depth.
            if path[0] in self.kind.newer:
                yield path[:1], self.kind.newer[str(path[0])]
            for depth, key in enumerate(path[1:], start=2):
                if path[0] == "http_config" and key in _HTTP_NEWER:
                    yield path[:depth], _HTTP_NEWER[str(key)]


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every scalar and every empty mapping or list, with its path."""
    inside = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    if not inside:
        yield path, value
    for key, below in inside:
        yield from leaves(below, (*path, key))


def block(kind: Kind) -> Checked:
    """Return the check of the value of a kind's key: a list of one mapping."""

    def check(value: Any, info: ValidationInfo) -> Passed:
        if isinstance(value, Passed):
            return value
        if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], Mapping):
            many = isinstance(value, list) and len(value) > 1
            raise Fault(
                "names several" if many else "is not a list of one block",
                value=NOTHING,
                expected="one block in a list, as Alertmanager's documentation has it",
                fix="write another receiver, with a name of its own, for each further one"
                if many
                else f'write "- " and its keys below {kind.key}',
            )
        written = _located(value[0], info)
        if faults := [fault.below((0,)) for fault in _faults(kind, written, info)]:
            raise Faults(faults)
        return Passed(kind, written)

    return Checked(check, located=True)


def _located(value: Any, info: ValidationInfo, key: str = "") -> Any:
    """Return a block with its files as paths from the folder of config.yaml."""
    if isinstance(value, Mapping):
        return {name: _located(below, info, str(name)) for name, below in value.items()}
    if isinstance(value, list):
        # `files` are those of HTTP headers.
        return [_located(below, info, "_file" if key == "files" else "") for below in value]
    if key.endswith("_file") and isinstance(value, str):
        return to_path(value, info)
    return value


def _faults(kind: Kind, written: Mapping[str, Any], info: ValidationInfo) -> Iterator[Fault]:
    for path, value in leaves(written):
        key = str(path[-1]) if not isinstance(path[-1], int) else str(path[-2] if len(path) > 1 else "")
        if isinstance(value, Path):
            if info.context and (fault := _file_fault(kind, path, value, info)):
                yield fault
        elif value in (None, "", []):
            continue
        elif len(path) == 1 and key in kind.secrets:
            yield _inline(path, f"{key}_file", f"{key}_file, which names a file with it alone")
        elif "sigv4" in path and key in ("secret_key", "access_key"):
            yield SecretFault(
                "is a secret that would be written to generated files",
                at=path,
                value=NOTHING,
                expected=f"no key here: {kind.title} reads AWS's own files, environment or role",
                fix="delete access_key and secret_key, and name a profile or role_arn",
            )
        elif path[0] in ("http_config", "tls_config") and key in _HTTP_SECRETS:
            yield _inline(path, _HTTP_SECRETS[key], _HTTP_SECRETS[key])
        elif isinstance(value, str) and key.endswith("url") and (what := _secret_in(value)):
            twin = {"webhook": "url_file", "incidentio": "url_file"}.get(kind.label)
            fix = f"put it into a file, and name that in {twin}" if twin and path == ("url",) else "delete it"
            yield SecretFault(
                f"holds {what}, which would be written to generated files",
                at=path,
                value=NOTHING,
                expected="a URL without secrets",
                fix=fix,
            )


def _inline(path: KeyPath, twin: str, expected: str) -> Fault:
    return SecretFault(
        "is a secret that would be written to generated files",
        at=path,
        value=NOTHING,
        expected=expected,
        fix=f"put it into a file below secrets/, and name that in {twin}",
    )


def _secret_in(url: str) -> str | None:
    if "{{" in url or not is_url(url):
        return None
    return "a user name or password" if "@" in url.split("/")[2] else secret_shapes.in_url(url)


def _file_fault(kind: Kind, path: KeyPath, file: Path, info: ValidationInfo) -> Fault | None:
    key = str(path[-1])
    if key in {"ca_file", "cert_file", "key_file"}:
        return check_shown(file, info, path)
    inline = key.removesuffix("_file")
    url = inline.endswith("url") and (inline in kind.secrets or inline == "url")
    return check_secret(file, info, path, url=url)


def _reached(value: Any, reached: Deployment, key: str = "") -> Any:
    """Return a block as Alertmanager reads it from where it runs."""
    if isinstance(value, Mapping):
        return {name: _reached(below, reached, str(name)) for name, below in value.items()}
    if isinstance(value, list):
        return [_reached(below, reached) for below in value]
    if isinstance(value, Path):
        return reached.file(value)
    if (
        isinstance(value, str)
        and key in ("url", "api_url", "app_url", "proxy_url", "token_url")
        and is_url(value)
    ):
        return reached.url(value)
    return reached.target(value) if key == "smarthost" and isinstance(value, str) else value


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return their settings with ours where they wrote none."""
    both = {
        key: _merged(ours[key], value)
        if isinstance(value, Mapping) and isinstance(ours.get(key), Mapping)
        else value
        for key, value in theirs.items()
    }
    return {**{key: value for key, value in ours.items() if key not in both}, **both}
