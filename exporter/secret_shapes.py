"""What secrets look like, and texts and URLs without them: for config.yaml, messages, logs and labels.

A secret is recognised by its shape, or by the name of what it is the value of. Only shapes that nothing
else has are listed: a false alarm would refuse a configuration that is right.
"""

from __future__ import annotations

import re

MASK = "(secret)"

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----|[\s\S]*)"
)
_SHAPES = {
    "a Slack token": r"\bxox[a-z]-[A-Za-z0-9-]{8,}|\bxapp-[A-Za-z0-9-]{8,}",
    "the address of a Slack webhook": r"\bhooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]{8,}",
    "the address of a Discord webhook": r"\bdiscord(?:app)?\.com/api/webhooks/\d+/[\w-]{8,}",
    "the address of a Teams webhook": r"\bwebhook\.office\.com/webhookb2/[\w@/-]{8,}",
    "the address of a Feishu bot": (
        r"\bopen\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/[\w-]{8,}"
    ),
    "the address of a WeCom robot": r"\bqyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=[\w-]{8,}",
    "the secret of a DingTalk robot": r"\bSEC[0-9a-f]{40,}",
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
    "a private key": _PRIVATE_KEY.pattern,
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
# What every shape contains, with a literal at each start: Python searches for these 30 times as fast.
_HINT = re.compile(
    r"xox|xapp-|slack\.com/|discord|office\.com/|feishu\.cn/|larksuite\.com/|weixin\.qq\.com/|SEC[0-9a-f]{40}|bot[0-9]|:[A-Za-z0-9_-]{35}|gh[pousr]_|github_pat_"
    r"|glpat-|glptt-|gldt-|glrt-|glcbt-|glsoat-|AKIA|ASIA|AIza|ya29\.|sk-|hf_|glsa_|glc_|k_live_|k_test_|SG\."
    r"|pypi-|npm_|eyJ|-----BEGIN|B[Ee][Aa][Rr]|b[Ee][Aa][Rr]|B[Aa][Ss][Ii]|b[Aa][Ss][Ii]|://[^/\s]*@"
    r"|\?[\w-]*=|&[\w-]*=|#[\w-]*=|;[\w-]*="
)
_REST_OF_KEY = re.compile(r"\A(?:(?!-----BEGIN)[\s\S])*?-----END [A-Z ]*PRIVATE KEY-----")

# The value of what is named as a secret: an assignment, an entry of JSON or of Python, however often it was
# quoted; what follows a flag, in a command line or a list of arguments; a header.
_NAMES = (
    "(?:pass(?:word|wd|phrase)|secret|token|(?:api|access|private|secret)[_-]?key|credentials?|authorization"
    "|cookie)"
)
_NAME_HINT = re.compile("pass(?:word|wd|phrase)|secret|token|key|credential|authorization|cookie")
_VALUE = r"""(?P<value> [bruf]{0,2}
      (?: (?P<quote> \\+["'] ) (?: (?! (?<!\\) (?P=quote) ) [^\n] )*
      | " (?: [^"\\\n] | \\. )*
      | ' (?: [^'\\\n] | \\. )*
      | (?: (?:bearer|basic|token) [ ]+ )? [^\s"',;&)}\]\\]+
    ))"""
_ASSIGNED = re.compile(
    rf"""(?ix)
    (?P<name> {_NAMES} (?:\\*["'])?
      (?: \s* : \s* [\w.|\[\] ]{{1,40}}? (?==) )?  # the type of an argument
      \s* (?: => | := | = | : ) \s* )
    {_VALUE}"""
)
_ARGUMENT = re.compile(
    rf"""(?ix) (?P<name> --[\w-]*{_NAMES} (?: [ \t]+ | \\*["'] \s* , \s* ) ) (?!-) {_VALUE}"""
)
_HEADER = re.compile(r"""(?i)(?P<name>(?:authorization|cookie)\s*:\s*)(?P<value>[^\n"'\\]+)""")
_PLAIN = re.compile(r"(?i)\\*[\"']?(?:|none|null|true|false|\(secret.*)")
_COUNT = re.compile(r"[0-9.]{1,12}")
"""Of tokens, which models read as well: max_new_token=512."""

# In the URL of a receiver or a server more names are suspicious than in a text that may be anything.
_PARAMETER = re.compile(r"(?i)token|key|secret|sign|auth|password|passwd")
# Chat services put the secret into the path: long, with letters and digits mixed.
_SEGMENT = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])[A-Za-z0-9_-]{20,}")


def found(text: str) -> str | None:
    """Return what kind of secret a text holds, ``None`` if it holds none that is known."""
    match = _ANY.search(text)
    return list(_SHAPES)[int(match.lastgroup[1:])] if match and match.lastgroup else None


def masked(text: str) -> str:
    """Return a text without the secrets in it."""
    return _ANY.sub(MASK, text)


def scrubbed(text: str) -> str:
    """Return a text of a foreign program without the secrets in it, by their shapes and by their names.

    For what ``masked`` leaves: ``DB_PASSWORD=...``, ``--api-key ...``, ``{"token": "..."}``, however often
    they were quoted. A private key whose beginning was cut off is recognised by its end.
    """
    if "PRIVATE KEY-----" in text:
        text = _PRIVATE_KEY.sub(MASK, _REST_OF_KEY.sub(MASK, text))
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        shown = masked(line) if _HINT.search(line) else line
        if _NAME_HINT.search(shown.lower()):
            for pattern in (_HEADER, _ARGUMENT, _ASSIGNED):
                shown = pattern.sub(_without_value, shown)
        lines[place] = shown
    return "".join(lines)


def _without_value(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if _PLAIN.fullmatch(value) or ("token" in name.lower() and _COUNT.fullmatch(value)):
        return found[0]
    quotes = re.match(r"\\*[\"']?", value)
    return f"{name}{quotes[0] if quotes else ''}{MASK}"


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
