"""What the kinds of channels have in common: limits, secrets, cutting, sending, what an answer means."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from exporter import __version__, secret_shapes
from exporter.notifier.wording import Card, Wording

SECONDS = 15.0  # Timeout for a whole answer
_STEP_SECONDS = 10.0
_LARGEST = 64 << 10
_SHOWN = 200
_LEAST = 6  # A shorter part of a URL is a common word, no secret
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Ended(Enum):
    """How an attempt ended."""

    DELIVERED = "delivered"
    RETRY = "retry"  # A transient error: the message waits for another attempt
    REFUSED = "refused"  # A fault of the channel's settings: messages wait until these are changed
    REJECTED = "rejected"  # A fault of this message: it will never be accepted


REASONS: Mapping[str, Ended] = {
    "rate_limit": Ended.RETRY,
    "server": Ended.RETRY,
    "timeout": Ended.RETRY,
    "connection": Ended.RETRY,
    "answer": Ended.RETRY,
    "signature": Ended.REFUSED,
    "keyword": Ended.REFUSED,
    "address": Ended.REFUSED,
    "revoked": Ended.REFUSED,
    "http": Ended.REFUSED,
    "secret_file": Ended.REFUSED,
    "not_installed": Ended.REFUSED,
    "other": Ended.REFUSED,
    "message": Ended.REJECTED,
    "expired": Ended.REJECTED,
}
"""Every reason for which an attempt may fail (the label ``reason`` of metrics), and how it ends then."""


class Outcome(NamedTuple):
    """What an attempt got: a reason of ``REASONS`` (empty if delivered), the answer, a pause in seconds."""

    reason: str = ""
    text: str = ""
    pause: float = 0.0

    @property
    def ended(self) -> Ended:
        """How the attempt ended."""
        return REASONS[self.reason] if self.reason else Ended.DELIVERED


class Window(NamedTuple):
    """At most so many requests within so many seconds."""

    most: int
    seconds: float


class SecretFileError(Exception):
    """Raised when a file with a secret cannot be used; names it without its content."""


@dataclass(frozen=True)
class Secrets:
    """The secret files of a channel, read at each delivery."""

    url_file: Path
    secret_file: Path | None = None

    def url(self) -> str:
        """Return the URL. Raises SecretFileError: it cannot be read."""
        return _read(self.url_file)

    @property
    def address(self) -> str:
        """A hash of the URL, so that all receivers with one URL share its rate limit."""
        try:
            return hashlib.sha256(self.url().encode()).hexdigest()
        except SecretFileError:
            return str(self.url_file)

    def secret(self) -> str:
        """Return the secret for signatures, empty without one. Raises SecretFileError: it cannot be read."""
        return _read(self.secret_file) if self.secret_file else ""

    def changed(self) -> float:
        """Return when one of the files was changed, in Unix seconds; 0 where none is there."""
        files = filter(None, (self.url_file, self.secret_file))
        return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)

    def hidden(self, text: str) -> str:
        """Return a text as logs and pages may show it: one line, short, without what the files hold."""
        parts: set[str] = set()
        for read in (self.url, self.secret):
            try:
                content = read()
            except SecretFileError:
                continue
            parts |= {content, *_secret_parts(content)}
        for part in sorted(parts - {""}, key=len, reverse=True):
            text = text.replace(part, secret_shapes.MASK)
        shown = "".join(sign if sign.isprintable() else " " for sign in secret_shapes.masked(text))
        return shown.strip()[:_SHOWN]


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
    return {each for each in pieces if len(each) >= _LEAST}


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


class Robot(ABC):
    """A kind of channel; ``keyword`` is one that the robot asks for in each message, if any."""

    windows: tuple[Window, ...] = ()  # its limits; empty if none is known
    most_bytes: int  # of a message

    def __init__(self, secrets: Secrets, wording: Wording, keyword: str = "") -> None:
        self._secrets, self._wording, self._keyword = secrets, wording, keyword

    def compose(self, cards: Sequence[Card]) -> tuple[Any, int]:
        """Return what to send and how many cards it holds: those that fit whole; one alone is cut to fit."""

        def written(card: Card, count: int) -> Any:
            return self._write(card, card.items[:count], len(card.items) - count + card.more)

        def fits(message: Any) -> bool:
            return self._size(message) <= self.most_bytes

        def merged(count: int) -> Any:
            card = self._wording.merged(cards[:count])
            return self._write(card, card.items, card.more)

        held = _longest(len(cards), lambda count: fits(merged(count))) if len(cards) > 1 else 1
        if held > 1:
            return merged(held), held
        card = cards[0]
        return written(card, _longest(len(card.items), lambda count: fits(written(card, count)))), 1

    @abstractmethod
    def send(self, message: Any) -> Outcome:
        """Send what ``compose`` returned. Raises SecretFileError: the channel's files cannot be used."""

    @abstractmethod
    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        """Return a message of a card with these of its lines, and the number of omitted lines."""

    def _size(self, message: Any) -> int:
        """Return the bytes of a message."""
        return len(encoded(message))


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, 0 if none does; a larger one never fits if a smaller does not."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def encoded(document: Any) -> bytes:
    """Return JSON as it is sent; a lone surrogate of a log becomes a question mark."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return orjson.dumps(plain(document))


def plain(value: Any) -> Any:
    """Return a document without lone surrogates, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a POST would become a GET, lost but counted as delivered."""

    def redirect_request(self, *_: Any) -> None:
        return None


class HttpAnswer(NamedTuple):
    """Status and body of an answer; the body is ``None`` where it is not a JSON object."""

    status: int
    body: dict[str, Any] | None
    text: str


def post(url: str, body: bytes, hidden: Any) -> HttpAnswer | Outcome:
    """POST JSON, and return the answer; or why none came, ``hidden`` making it fit for a log."""
    request = urllib.request.Request(  # noqa: S310  (a URL of the user's own)
        url,
        body,
        {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"stepwatch/{__version__}"},
    )
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if (urlsplit(url).hostname or "") in _LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + SECONDS
    try:
        try:
            answer = urllib.request.build_opener(*handlers).open(request, timeout=_STEP_SECONDS)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            content = _content(answer, deadline)
            status = int(answer.status)
    except (http.client.HTTPException, ValueError) as problem:
        return Outcome("answer", hidden(f"the answer is cut off or not HTTP ({type(problem).__name__})"))
    except OSError as problem:
        reason: Any = problem.reason if isinstance(problem, urllib.error.URLError) else problem
        if isinstance(reason, TimeoutError):
            return Outcome("timeout", f"no answer within {SECONDS:.0f} s")
        if isinstance(reason, ssl.SSLError):
            return Outcome("connection", hidden(f"TLS: {reason.reason or reason}"))
        words = reason.strerror if isinstance(reason, OSError) else reason
        return Outcome("connection", hidden(str(words or type(reason).__name__)))
    try:
        found = orjson.loads(content)
    except ValueError:
        found = None
    return HttpAnswer(
        status, found if isinstance(found, dict) else None, hidden(content.decode("utf-8", "replace"))
    )


def _content(answer: Any, deadline: float) -> bytes:
    """Return a body, which must be as long as its head says, and come in time."""
    content = bytearray()
    while block := answer.read1(1 << 14):
        content += block
        if len(content) > _LARGEST:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    length = answer.headers.get("Content-Length")
    if length and length.isdecimal() and len(content) < int(length):
        raise http.client.IncompleteRead(bytes(content))
    return bytes(content)


def judged(answer: HttpAnswer) -> Outcome | None:
    """Return what a status says that no robot explains in its body; ``None`` if the body decides."""
    status = f"HTTP {answer.status}"
    if answer.status == 429:
        return Outcome("rate_limit", f"{status} {answer.text}", 60.0)
    if answer.status == 408 or answer.status >= 500:
        return Outcome("server", f"{status} {answer.text}".strip())
    if answer.body is None:
        if answer.status >= 300:
            return Outcome("http", f"{status} {answer.text}".strip())
        return Outcome("answer", f"{status}, but not the JSON of this robot: {answer.text}")
    return None


def coded(
    answer: HttpAnswer | Outcome, names: Sequence[tuple[str, str]], codes: Mapping[int, str], pause: float
) -> Outcome:
    """Return what an answer means by its ``codes``; of the ``names`` the first that it has counts."""
    if isinstance(answer, Outcome):
        return answer
    if (found := judged(answer)) is not None:
        return found
    body = answer.body or {}
    key, words = next((pair for pair in names if type(body.get(pair[0])) is int), ("", ""))
    if not key:
        if answer.status >= 300:
            return Outcome("http", f"HTTP {answer.status} {answer.text}")
        return Outcome("answer", f"there is no error code in the answer: {answer.text}")
    code = body[key]
    if code == 0:
        return Outcome(text=f"{key} 0 {str(body.get(words, '')).strip()}".strip())
    reason = codes.get(code, "other")
    text = f"{key} {code} {str(body.get(words, '')).strip()}".strip()
    return Outcome(reason, text, pause if reason == "rate_limit" else 0.0)
