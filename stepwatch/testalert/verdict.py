"""How a test ended, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepwatch.config.receivers import Mail, Receiver, Slack, Way, Webhook
from stepwatch.testalert.alertmanager import Sent
from stepwatch.testalert.journal import Story
from stepwatch.testalert.redacted import redacted

_ANY = (Webhook, Mail, Slack)
_HTTP = (Webhook, Slack)

_FIXES: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("connection refused", _ANY, "nothing listens there: check host and port, and that the receiver runs"),
    ("no such host|server misbehaving", _ANY, "no such host is known: check its name"),
    (
        "no route to host|network is unreachable|timeout|deadline exceeded",
        _ANY,
        "there is no way to it: check address, firewall and proxy from where Alertmanager runs",
    ),
    ("no such file", _ANY, "put the file back, or name another one in config.yaml and `make up`"),
    ("permission denied", _ANY, "let Alertmanager's user read that file"),
    (
        "x509|certificate|tls:",
        _ANY,
        "use the host name that the certificate is for, or have this machine trust who signed it",
    ),
    ("unsupported protocol|invalid (URL|character)", _HTTP, "check the address in url or url_file"),
    ("status code 404|no_service|no_team", (Slack,), "make a new webhook in Slack, its URL into url_file"),
    ("channel_not_found|channel_is", (Slack,), "name another channel, or none: then it is the webhook's own"),
    ("status code (401|403)", (Slack,), "make a new webhook in Slack and put its URL into url_file"),
    ("status code (401|403)", (Webhook,), "check what credentials_file, or url_file, holds"),
    ("status code 404", (Webhook,), "check the path in the URL: the server has nothing there"),
    ("status code 3", _HTTP, "write the address that it redirects to: redirects are not followed"),
    ("status code 429", _HTTP, "wait: it limits how many messages it takes"),
    ("status code 4", _HTTP, "it does not want such a message: see what it expects, and its own log"),
    ("status code 5", _HTTP, "the fault is on its side: see its own log"),
    (
        r" auth: |\b53[45]\b",
        (Mail,),
        "check username and what password_file holds (Alertmanager before 0.27: without a line end)",
    ),
    (
        "STARTTLS extension",
        (Mail,),
        "the server offers no encryption at this port: try 587 or 465, or tls: false in a trusted network",
    ),
    ("auth mechanism", (Mail,), "the server wants another kind of login than PLAIN or LOGIN: use another"),
    ("RCPT command", (Mail,), "the server does not take mail for this address: check to, or log in"),
    ("MAIL command", (Mail,), "the server does not take mail from this address: check from, or log in"),
    (
        "first record does not look like a TLS|EOF",
        (Mail,),
        "check the port: 465 speaks TLS at once, 587 later",
    ),
)


def fix(error: str, way: Way) -> str | None:
    """What to do about an error, ``None`` if nothing is known."""
    for sign, ways, words in _FIXES:
        if isinstance(way, ways) and re.search(sign, error):
            return words
    return None


@dataclass(frozen=True)
class Verdict:
    """How it ended, as people read it, and whether that is what one hopes for."""

    delivered: bool
    words: str


def delivered(receiver: Receiver, sent: Sent) -> Verdict:
    """The receiver took it."""
    took = f" in {max(sent.seconds, 0.01):.2f} s" if sent.attempts == 1 else ""
    lines = [f"{receiver.name}: Alertmanager delivered the test message by {receiver.way.spoken}{took}."]
    if isinstance(receiver.way, Mail):
        lines += [f"The mail server took it: see that {_all(receiver.way.to)} got it, and not as spam."]
    return Verdict(delivered=True, words="\n  ".join(lines))


def refused(receiver: Receiver, story: Story, *, where: str) -> Verdict:
    """The receiver did not take it, as the log tells."""
    what = fix(story.error, receiver.way) or f"look into {where}"
    return _undelivered(receiver, redacted(story.error, receiver.way.secrets), _again(story), what)


def _again(story: Story) -> str:
    if story.final:
        return "Alertmanager takes that for final and tried once; a real alert is tried again at intervals."
    if story.gave_up:
        return "Alertmanager tried several times; with a real alert it goes on as long as the alert lasts."
    return "Alertmanager is still trying."


def failed(receiver: Receiver, *, where: str) -> Verdict:
    """Alertmanager counts a failure, and nothing at hand tells why."""
    return _undelivered(receiver, "Alertmanager counts a failure", f"{where} names the error.", "fix that")


def muted(receiver: Receiver, silences: list[str], url: str) -> Verdict:
    """A silence keeps it back."""
    return _undelivered(
        receiver,
        "a silence covers it",
        "It may cover real alerts as well.",
        f"expire it at {url}/#/silences/{silences[0]} and test again",
    )


def unknown(receiver: Receiver, sent: Sent, *, patience: float, where: str) -> Verdict:
    """Time is up."""
    return _undelivered(
        receiver,
        f"nothing is known after {patience:.0f} s",
        f"Alertmanager began {sent.messages:.0f} such messages in that time, and {sent.arrived:.0f} arrived.",
        f"see whether it arrives, and what {where} says",
    )


def _undelivered(receiver: Receiver, why: str, more: str, what: str) -> Verdict:
    first = f"{receiver.name}: not delivered by {receiver.way.spoken}: {why}."
    return Verdict(delivered=False, words="\n  ".join((first, more, f"Fix: {what}.")))


def _all(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
