"""What secrets look like, and texts and URLs without them: for config.yaml, messages, logs and labels.

A secret is recognised by its shape, or by the name of what it is the value of. Only shapes that nothing
else has are listed: a false alarm would refuse a configuration that is right.
"""

from __future__ import annotations

import re

MASK = "(secret)"

_SHAPES = {
    "a Slack token": r"\bxox[a-z]-[A-Za-z0-9-]{8,}|\bxapp-[A-Za-z0-9-]{8,}",
    "the address of a Slack webhook": r"\bhooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]{8,}",
    "the address of a Discord webhook": r"\bdiscord(?:app)?\.com/api/webhooks/\d+/[\w-]{8,}",
    "the address of a Teams webhook": r"\bwebhook\.office\.com/webhookb2/[\w@/-]{8,}",
    "a Telegram token": r"\bbot\d{6,}:[A-Za-z0-9_-]{20,}|\b\d{8,10}:[A-Za-z0-9_-]{35}\b",
    "a GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}",
    "a GitLab token": r"\bgl(?:pat|ptt|dt|rt|cbt|soat)-[\w-]{16,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a Google key": r"\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}",
    "a key of a model service": r"\bsk-[A-Za-z0-9][\w-]{19,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}",
    "a Grafana token": r"\bgl(?:sa|c)_[\w+/=]{20,}",
    "a Stripe key": r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "a SendGrid key": r"\bSG\.[\w-]{16,}\.[\w-]{16,}",
    "a package index token": r"\bpypi-[\w-]{20,}|\bnpm_[A-Za-z0-9]{20,}",
    "a JSON web token": r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*",
    "a header with a login": r"(?i:\b(?:bearer|basic) )[\w.~+/=-]{16,}",
    "a password in a URL": r"(?<=://)[^/\s:@]*:(?!TOKEN@|PASSWORD@)[^/\s@]+(?=@)",
    "a secret parameter in a URL": (
        r"(?<=[?&#;])(?i:[\w-]*(?:api[_-]?key|access[_-]?key|token|secret|password|passwd))=[^&#;\s]{3,}"
    ),
}
_ANY = re.compile("|".join(f"(?P<s{number}>{shape})" for number, shape in enumerate(_SHAPES.values())))

_NAMED = re.compile(
    r"(?i)(?:.*[_.\W])?(?:password|passwd|passphrase|secret|token|api_?key|access_?key|private_?key"
    r"|credentials?|authorization)"
)
# In the URL of a receiver or a server more names are suspicious than in a text that may be anything.
_PARAMETER = re.compile(r"(?i)token|key|secret|sign|auth|password|passwd")
# Chat services put the secret into the path: long, with letters and digits mixed.
_SEGMENT = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])[A-Za-z0-9_-]{20,}")


def found(text: str) -> str | None:
    """Return what kind of secret a text holds, ``None`` if it holds none that is known."""
    match = _ANY.search(text)
    if match is None or match.lastgroup is None:
        return None
    return list(_SHAPES)[int(match.lastgroup[1:])]


def masked(text: str) -> str:
    """Return a text without the secrets in it."""
    return _ANY.sub(MASK, text)


def names_one(name: str) -> bool:
    """Whether a name is that of a secret, such as ``password`` or ``api_token``."""
    return bool(_NAMED.fullmatch(name))


def in_url(url: str) -> str | None:
    """Return what of a URL looks like a secret, ``None`` if nothing does; stricter than ``found``."""
    from urllib.parse import parse_qsl, urlsplit  # noqa: PLC0415  (as below)

    parts = urlsplit(url)
    parameters = (*parse_qsl(parts.query, True), *parse_qsl(parts.fragment, True))  # noqa: FBT003
    if any(_PARAMETER.search(name) for name, _ in parameters):
        return "a secret in its query"
    if any(map(_SEGMENT.fullmatch, parts.path.split("/"))):
        return "what looks like a secret in its path"
    return found(url)


def masked_url(url: str) -> str:
    """Return a URL as a message or a label may show it: scheme, host and path, without secrets."""
    from urllib.parse import urlsplit  # noqa: PLC0415  (0.3 MB that the GPU exporter's log does without)

    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none, such as the password of a login without its host
    except ValueError:
        return "an address that cannot be read"
    text = masked(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    host, slash, path = text.partition("://")[2].partition("/")
    segments = (MASK if _SEGMENT.fullmatch(segment) else segment for segment in path.split("/"))
    return f"{parts.scheme}://{host}{slash}{'/'.join(segments)}"
