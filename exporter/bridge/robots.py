"""Chat robots: their limits, how they sign, what their answers mean. Their messages are templates."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import jinja2

from exporter import __version__, secret_shapes
from exporter.bridge.words import Card, Words
from exporter.http_client import NoAnswerError, ask

TAKEN, LATER, NEVER = 200, 503, 400
"""What Alertmanager is answered: it retries 503 until the group's next interval, and 400 only then."""

_NEVER = {
    "signature",
    "keyword",
    "address",
    "revoked",
    "message",
    "http",
    "secret_file",
    "not_installed",
    "other",
}
REASONS = ("queue", "rate_limit", "server", "timeout", "connection", "answer", *sorted(_NEVER))
"""Why a message was not taken: the label ``reason`` of metrics."""

SECONDS = 8.0
"""For a whole answer. Alertmanager gives up a request after ten at the earliest, and then sends it again."""
_HEADERS = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"stepwatch/{__version__}"}
_MOST_SAID = 200
_LEAST_SECRET = 6  # a shorter part of a URL is a common word
_MARKUP = {ord(sign): chr(ord(sign) + 0xFEE0) for sign in "<>[]*#"} | {ord("`"): "'"}
"""To the full-width forms of these signs: robots that read Markdown have no escapes."""
_SAFEGUARDS = {"sign": "signature", "timestamp": "signature", "签名": "signature", "keyword": "keyword"}
_SAFEGUARDS |= {"关键词": "keyword", "whitelist": "address", "ip ": "address", "白名单": "address"}
"""DingTalk's error 310000 is one of three safeguards; words of its text say which."""


class Outcome(NamedTuple):
    """What became of a message: a reason of ``REASONS`` (empty if taken), the robot's words, a pause (s)."""

    reason: str = ""
    said: str = ""
    pause: float = 0.0

    @property
    def status(self) -> int:
        """What Alertmanager is answered."""
        return NEVER if self.reason in _NEVER else LATER if self.reason else TAKEN


class SecretFileError(Exception):
    """Raised when a file with a secret cannot be used; names it without its content."""


@dataclass(frozen=True)
class Kind:
    """A kind of robot.

    ``windows`` are its limits: at most so many messages in so many seconds; ``blocked`` for how long it takes
    none after more. ``most`` is a message's bytes, of all of it or of what ``sized`` names. ``codes`` are the
    reasons of its errors, whose number and text are in the first pair of ``names`` that an answer has.
    """

    windows: tuple[tuple[int, float], ...] = ()
    blocked: float = 60.0
    most: int = 20_000
    sized: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = (("errcode", "errmsg"),)
    codes: Mapping[int, str] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "feishu": Kind(
        windows=((100, 60.0), (5, 1.0)),
        most=20_000 - 100,  # which the signature takes
        names=(("code", "msg"), ("StatusCode", "StatusMessage")),
        codes={
            9499: "message",  # or too many
            11232: "rate_limit",
            19001: "revoked",
            19002: "message",
            19021: "signature",
            19022: "address",
            19024: "keyword",
        },
    ),
    "dingtalk": Kind(
        windows=((20, 60.0),),
        blocked=600.0,
        codes={
            -1: "server",
            **dict.fromkeys((90030, 130101, 410100), "rate_limit"),
            **dict.fromkeys((300001, 300005, 400013, 400101, 400102, 400106), "revoked"),
            **dict.fromkeys((400105, 430101, 430102, 430103, 430104, 460101), "message"),
        },
    ),
    "wecom": Kind(
        windows=((20, 60.0),),
        most=4096,
        sized=("markdown", "content"),
        codes={
            -1: "server",
            **dict.fromkeys((45009, 45033), "rate_limit"),
            **dict.fromkeys((93000, 93008), "revoked"),
            **dict.fromkeys((40008, 40009, 40058, 44004, 45002), "message"),
        },
    ),
    "apprise": Kind(most=3000, sized=("body",)),  # most services take that much; Apprise cuts the rest
}
"""Kinds by their names in the settings."""


@dataclass(frozen=True)
class Robot:
    """A receiver's robot; its files are read for each message."""

    kind: str
    url_file: Path
    secret_file: Path | None = None
    keyword: str = ""

    @property
    def address(self) -> str:
        """A hash of its URL: receivers with one URL share its limits."""
        try:
            return hashlib.sha256(_read(self.url_file).encode()).hexdigest()
        except SecretFileError:
            return str(self.url_file)

    def send(self, message: Any) -> Outcome:
        """Send what ``compose`` returned."""
        try:
            url = _read(self.url_file)
            secret = _read(self.secret_file) if self.secret_file else ""
        except SecretFileError as problem:
            return Outcome("secret_file", str(problem))
        if self.kind == "apprise":
            outcome = _by_apprise(url, message)
        else:
            signed, body = _signed(self.kind, url, secret, message)
            try:
                reply = ask(signed, _HEADERS, body, seconds=SECONDS)
                outcome = _judged(KINDS[self.kind], reply.status, reply.text)
            except NoAnswerError as problem:
                outcome = Outcome(problem.reason, str(problem))
        return outcome._replace(said=_hidden(outcome.said, url, secret))

    def compose(self, card: Card, words: Words) -> Any:
        """Return a card as this robot's message, with as many of its lines as fit."""
        kind = KINDS[self.kind]

        def written(count: int) -> Any:
            left = len(card.items) - count + card.more
            ends = [words.translate("and {count} more", count=left)] if left else []
            said = (card.title, *card.facts, *card.items[:count])
            if self.keyword and not any(self.keyword in text for text in said):
                ends.append(self.keyword)

            def lines(bullet: str) -> list[str]:
                return [bullet + each for each in card.items[:count]] + ends

            return json.loads(
                _templates().get_template(f"{self.kind}.json.j2").render(card=card, lines=lines)
            )

        def fits(count: int) -> bool:
            part = written(count)
            for name in kind.sized:
                part = part[name]
            return len(part.encode() if isinstance(part, str) else encoded(part)) <= kind.most

        low, high = 0, len(card.items)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return written(low)


def encoded(document: Any) -> bytes:
    """Return JSON as it is sent."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def _templates() -> jinja2.Environment:
    """The templates of this folder, with the filters that they share."""
    folder = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    made = jinja2.Environment(loader=folder, undefined=jinja2.StrictUndefined)  # noqa: S701  (JSON, not HTML)
    made.filters |= {"cut": _cut, "harmless": lambda text: text.translate(_MARKUP)}
    return made


def _cut(text: str, most: int) -> str:
    """Return a text cut to a number of bytes of UTF-8."""
    content = text.encode("utf-8", "replace")
    return text if len(content) <= most else f"{content[: most - 4].decode('utf-8', 'ignore')} ..."


def _signed(kind: str, url: str, secret: str, message: Any) -> tuple[str, bytes]:
    """Return the URL and the body of a request, signed; either signature is valid for an hour."""
    if secret and kind == "feishu":
        moment = str(int(time.time()))
        digest = hmac.new(f"{moment}\n{secret}".encode(), b"", hashlib.sha256).digest()
        message = {"timestamp": moment, "sign": base64.b64encode(digest).decode(), **message}
    elif secret and kind == "dingtalk":
        moment = str(int(time.time() * 1000))
        digest = hmac.new(secret.encode(), f"{moment}\n{secret}".encode(), hashlib.sha256).digest()
        sign = quote(base64.b64encode(digest), safe="")
        url += f"{'&' if '?' in url else '?'}timestamp={moment}&sign={sign}"
    return url, encoded(message)


def _judged(kind: Kind, status: int, text: str) -> Outcome:
    """Return what an answer means: its body decides, if there is one of this robot."""
    if status == 429:
        return Outcome("rate_limit", f"HTTP 429 {text}", kind.blocked)
    if status == 408 or status >= 500:
        return Outcome("server", f"HTTP {status} {text}")
    try:
        body = json.loads(text)
        key, words = next(pair for pair in kind.names if type(body.get(pair[0])) is int)
    except (ValueError, AttributeError, StopIteration):
        if status >= 300:
            return Outcome("http", f"HTTP {status} {text}")
        return Outcome("answer", f"HTTP {status}, but not the JSON of this robot: {text}")
    code, explanation = body[key], str(body.get(words, "")).strip()
    said = f"{key} {code} {explanation}".strip()
    if code == 0:
        return Outcome(said=said)
    reason = kind.codes.get(code, "other")
    if code == 9499 and "too many" in explanation.lower():
        reason = "rate_limit"
    if code == 310000:
        found = (reason for sign, reason in _SAFEGUARDS.items() if sign in explanation.lower())
        reason = next(found, "other")
    return Outcome(reason, said, kind.blocked if reason == "rate_limit" else 0.0)


_APPRISE_LOCK = Lock()
"""Held while Apprise sends: all of its services log to one logger."""


def _by_apprise(url: str, message: Any) -> Outcome:
    """Send by Apprise, which says only whether it was done; what it logs holds URLs, so only we read it."""
    try:
        import apprise  # noqa: PLC0415  (30 MB, and installed by those who use it)
    except ImportError:
        return Outcome("not_installed", "the package apprise is not installed. Fix: pip install apprise")
    logging.getLogger("apprise").propagate = False
    target = apprise.Apprise()
    capture = apprise.LogCapture(level=apprise.logging.WARNING, fmt="%(message)s")  # type: ignore[no-untyped-call]
    with _APPRISE_LOCK, capture as log:
        if not target.add(url):
            return Outcome("secret_file", "url_file does not hold an Apprise URL that this version knows")
        done = target.notify(**message, body_format=apprise.NotifyFormat.TEXT, interpret_escapes=False)
        logged = " ".join(log.getvalue().split())
    if done:
        return Outcome(said="Apprise reports success; it does not show what the service answered")
    found = re.search(r"\berror[= ](\d{3})\b", logged)
    status = int(found[1]) if found else 0
    if status == 429:
        return Outcome("rate_limit", logged, 60.0)
    reason = "http" if status in (401, 403, 404, 410) else "server"
    return Outcome(reason, logged or "Apprise reports a failure and no reason")


def _read(file: Path) -> str:
    try:
        content = file.read_text(encoding="utf-8").strip()
    except OSError as problem:
        raise SecretFileError(f"{file}: {problem.strerror}") from None
    except ValueError:
        raise SecretFileError(f"{file}: it holds no text") from None
    if not content:
        raise SecretFileError(f"{file}: it is empty")
    return content


def _hidden(text: str, url: str, secret: str) -> str:
    """Return a text as logs and metrics may show it: one line, short, without what the files hold."""
    parts = {url, secret, *_secret_parts(url)} - {""}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, secret_shapes.MASK)
    shown = "".join(sign if sign.isprintable() else " " for sign in secret_shapes.masked(text))
    return shown.strip()[:_MOST_SAID]


def _secret_parts(content: str) -> set[str]:
    """Return what of a URL is secret by itself: words of its path, such as `webhook`, are not."""
    if "://" not in content:
        return set()
    url = urlsplit(content)
    values = [part.partition("=")[2] for part in url.query.split("&")]
    segments = url.path.split("/")
    if url.scheme in ("http", "https"):
        segments = [each for each in segments if any(sign.isdigit() for sign in each)]
    else:  # Apprise has tokens in any place
        segments += [url.netloc, url.hostname or ""]
    pieces = (url.path, url.query, *values, *segments, url.username or "", url.password or "")
    return {each for each in pieces if len(each) >= _LEAST_SECRET}
