"""How a test ended, in words without the secrets that receivers repeat in their answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from exporter import secret_shapes
from stepwatch.config.integrations import Integration, Mail
from stepwatch.config.receiver_kinds import KINDS
from stepwatch.config.receivers import Receiver
from stepwatch.schema.path_types import read_secret
from stepwatch.testalert.alertmanager import LogResult, Sent

_SHOWN = 400
_LEAST = 6
"""A shorter part of a URL is a common word, no secret."""

_ANY = frozenset(kind.label for kind in KINDS.values())
_HTTP = frozenset(kind.label for kind in KINDS.values() if kind.http)
_SLACK, _WEBHOOK, _MAIL = frozenset({"slack"}), frozenset({"webhook"}), frozenset({"email"})
_TELEGRAM, _PAGERDUTY = frozenset({"telegram"}), frozenset({"pagerduty"})
_TEAMS = frozenset({"msteams", "msteamsv2"})
_HOOKS = frozenset({"discord", "mattermost", *_TEAMS})
_ROCKETCHAT, _WECHAT, _SNS = frozenset({"rocketchat"}), frozenset({"wechat"}), frozenset({"sns"})
_KEYS = frozenset({"opsgenie", "victorops"})

_FIXES: tuple[tuple[str, frozenset[str], str], ...] = (
    # Above timeouts: without credentials, it looks for them on a server of AWS that others do not reach.
    (
        "status code 40[013]|credential",
        _SNS,
        "check the AWS credentials that Alertmanager finds, and what they allow",
    ),
    (
        "connection refused",
        _ANY,
        "nothing listens there: check host and port, and that the receiver is running",
    ),
    ("no such host|server misbehaving", _ANY, "unknown host: check its name"),
    (
        "no route to host|network is unreachable|timeout|deadline exceeded",
        _ANY,
        "it is unreachable: check address, firewall and proxy from where Alertmanager runs",
    ),
    ("no such file", _ANY, "put the file back, or name another one in config.yaml and `make up`"),
    ("permission denied", _ANY, "let Alertmanager's user read that file"),
    (
        "x509|certificate|tls:",
        _ANY,
        "use the host name that the certificate is for, or add its CA to the trusted ones of this machine",
    ),
    ("unsupported protocol|invalid (URL|character)", _HTTP, "check the address in url or url_file"),
    (
        "status code 404|no_service|no_team",
        _SLACK,
        "create a new webhook in Slack and put its URL into url_file",
    ),
    ("channel_not_found|channel_is", _SLACK, "name another channel, or none to use the webhook's own"),
    ("status code (401|403)", _SLACK, "create a new webhook in Slack and put its URL into url_file"),
    ("status code (401|403)", _WEBHOOK, "check what credentials_file, or url_file, holds"),
    ("status code 404", _WEBHOOK, "check the path in the URL: the server does not know it"),
    ("Unauthorized|Not Found", _TELEGRAM, "check what bot_token_file holds: BotFather shows the token"),
    (
        "chat not found|bot was (blocked|kicked)|not a member",
        _TELEGRAM,
        "check chat_id, and that the bot was added to that chat (a group's id is negative)",
    ),
    ("Too Many Requests|retry after", _TELEGRAM, "wait: Telegram's rate limit is reached"),
    (
        "status code (401|403|404|410)|Invalid webhook",
        _HOOKS,
        "create a new webhook there and put its URL into webhook_url_file",
    ),
    ("Key format|status code 40[134]", _KEYS, "check what api_key_file holds"),
    (
        "error response from Rocketchat|status code 400",
        _ROCKETCHAT,
        "check channel, and that the user of token_id_file may write there",
    ),
    ("invalid APISecret", _WECHAT, "check corp_id and what api_secret_file holds"),
    (
        "invalid.*key|status code 40[013]",
        _PAGERDUTY,
        "check what routing_key_file (Events API v2) or service_key_file (v1) holds",
    ),
    (
        "status code (401|403)",
        _HTTP,
        "check what the file with its key or token holds",
    ),
    ("status code 3", _HTTP, "use the address that it redirects to: redirects are not followed"),
    ("status code 429", _HTTP, "wait: its rate limit is reached"),
    ("status code 4", _HTTP, "it rejects this message: check what it expects, and its log"),
    ("status code 5", _HTTP, "it has an internal error: check its log"),
    (
        r" auth: |\b53[45]\b",
        _MAIL,
        "check username and what password_file holds (Alertmanager before 0.27: without a trailing newline)",
    ),
    (
        "STARTTLS extension",
        _MAIL,
        "the server offers no encryption at this port: try 587 or 465, or tls: false in a trusted network",
    ),
    ("auth mechanism", _MAIL, "the server accepts neither PLAIN nor LOGIN: use another server"),
    ("RCPT command", _MAIL, "the server does not accept mail for this address: check to, or log in"),
    ("MAIL command", _MAIL, "the server does not accept mail from this address: check from, or log in"),
    (
        "first record does not look like a TLS|EOF",
        _MAIL,
        "check the port: 465 speaks TLS at once, 587 later",
    ),
)


def fix(error: str, integration: Integration) -> str | None:
    """What to do about an error, ``None`` if nothing is known."""
    for sign, labels, words in _FIXES:
        if integration.label in labels and re.search(sign, error):
            return words
    return None


@dataclass(frozen=True)
class Verdict:
    """The result for the user, and whether the message was delivered."""

    delivered: bool
    words: str


def delivered(receiver: Receiver, sent: Sent) -> Verdict:
    """The receiver accepted it."""
    took = f" in {max(sent.seconds, 0.01):.2f} s" if sent.attempts == 1 else ""
    lines = [
        f"{receiver.name}: Alertmanager delivered the test message by {receiver.integration.title}{took}."
    ]
    if isinstance(receiver.integration, Mail):
        *others, last = receiver.integration.to
        names = f"{', '.join(others)} and {last}" if others else last
        lines += [f"The mail server accepted it: check that {names} received it, and not as spam."]
    return Verdict(delivered=True, words="\n  ".join(lines))


def refused(receiver: Receiver, log_result: LogResult, *, where: str) -> Verdict:
    """The receiver did not accept it, by the log."""
    if log_result.final:
        again = "Alertmanager treats that as permanent and tried once; a real alert is retried at intervals."
    elif log_result.gave_up:
        again = "Alertmanager tried several times; a real alert is retried as long as it fires."
    else:
        again = "Alertmanager is still trying."
    what = fix(log_result.error, receiver.integration) or f"check {where}"
    return _undelivered(receiver, redacted(log_result.error, receiver.integration.secrets), again, what)


def failed(receiver: Receiver, *, where: str) -> Verdict:
    """Alertmanager counts a failure, and the reason is not readable here."""
    return _undelivered(receiver, "Alertmanager counts a failure", f"{where} names the error.", "fix that")


_ROBOT_FIXES = {
    "signature": "check secret_file, and the clock of this machine: a signature is valid for an hour",
    "keyword": "set keyword to one of the robot's own, or remove its keywords",
    "address": "add this machine's public address to the robot's list, or use its signature instead",
    "revoked": "create a new robot and put its URL into url_file",
    "http": "check the URL in url_file",
    "secret_file": "correct that file; the notifier retries as soon as it changes",
    "not_installed": "install it where Stepwatch runs, then `make up`",
    "rate_limit": "wait: the robot's rate limit is reached",
    "message": "see its answer; a robot that refuses a test refuses alerts as well",
    "server": "it has an internal error: try again later",
    "answer": "the answer is not from this robot: check the URL in url_file, and proxies",
    "timeout": "check firewall and proxy from where the notifier runs",
    "connection": "check address, firewall and proxy from where the notifier runs",
}


def taken(receiver: Receiver, answer: str, seconds: float) -> Verdict:
    """The notifier delivered it, and the robot answered so."""
    words = (
        f"{receiver.name}: the notifier delivered the test message by {receiver.integration.title} in "
        f"{max(seconds, 0.01):.2f} s.\n  Its answer: {redacted(answer, ())}."
    )
    return Verdict(delivered=True, words=words)


def not_taken(receiver: Receiver, reason: str, answer: str, *, final: bool) -> Verdict:
    """The robot did not accept it, for a reason of the notifier."""
    # The notifier has taken the secrets out.
    why = redacted(answer, ()) if answer else "no attempt has ended"
    more = (
        "A test is not retried further; a real alert stays in the queue until it is accepted, for at most "
        "three days."
        if final
        else "The notifier is still trying."
    )
    return _undelivered(
        receiver, why, more, _ROBOT_FIXES.get(reason, "see the documentation of the robot's vendor")
    )


def lost(receiver: Receiver, why: str) -> Verdict:
    """The notifier has no result."""
    first = f"{receiver.name}: Alertmanager handed the test message to the notifier, and then: {why}"
    return Verdict(delivered=False, words=first)


def muted(receiver: Receiver, silences: list[str], url: str) -> Verdict:
    """A silence mutes it."""
    return _undelivered(
        receiver,
        "a silence covers it",
        "It may cover real alerts as well.",
        f"expire it at {url}/#/silences/{silences[0]} and test again",
    )


def unknown(receiver: Receiver, sent: Sent, *, patience: float, where: str) -> Verdict:
    """The timeout has passed."""
    return _undelivered(
        receiver,
        f"no result after {patience:.0f} s",
        f"Alertmanager began {sent.messages:.0f} such messages in that time, and {sent.arrived:.0f} arrived.",
        f"check whether it arrives, and {where}",
    )


def _undelivered(receiver: Receiver, why: str, more: str, what: str) -> Verdict:
    first = f"{receiver.name}: not delivered by {receiver.integration.title}: {why}."
    return Verdict(delivered=False, words="\n  ".join((first, more, f"Fix: {what}.")))


def redacted(error: str, files: Iterable[Path]) -> str:
    """An error as a message may print it: one line, not too long, without what the files hold."""
    for part in sorted(_parts(files), key=len, reverse=True):
        error = error.replace(part, secret_shapes.MASK)
    printable = "".join(sign if sign.isprintable() else " " for sign in secret_shapes.masked(error))
    return printable.strip(". ")[:_SHOWN] or "no reason given"


def _parts(files: Iterable[Path]) -> set[str]:
    """What the files hold, and of URLs the path and its segments as well."""
    contents = set()
    for path in files:
        with suppress(OSError, UnicodeDecodeError):
            contents.add(read_secret(path))
    paths = {urlsplit(each).path for each in contents if "://" in each}
    segments = {segment for path in paths for segment in path.split("/")}
    return contents - {""} | {part for part in paths | segments if len(part) >= _LEAST}
