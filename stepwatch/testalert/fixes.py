"""What to do about the errors that Alertmanager gets from receivers, by a sign in its words."""

from __future__ import annotations

import re

from stepwatch.config.receiver_types import Mail, Slack, Way, Webhook

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
