"""Reads pages of the stack's own parts."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPMessage
from typing import IO, Any, NamedTuple

from exporter import credentials
from stepwatch.schema.errors import Refused

FAULTS = (OSError, ValueError, http.client.HTTPException)
"""What an answer may end with; the last when a part stops in the middle of one."""

Password = Callable[[str], str | None]
"""Returns the password of the user internal for a server at host:port, ``None`` for servers of others."""

_passwords: list[Password] = []


def sign_in(password: Password) -> None:
    """From now on sign in with this password where Prometheus or Alertmanager asks for one."""
    _passwords.append(password)


def password_of(address: str) -> str | None:
    """The password for a server at host:port, ``None`` if none is known."""
    return next((found for password in _passwords if (found := password(address))), None)


class _SignIn(urllib.request.BaseHandler):
    def http_error_401(
        self, request: urllib.request.Request, answer: IO[bytes], _: int, __: str, ___: HTTPMessage
    ) -> Any:
        """Ask again with the password; ``None``, an error of the caller, without one or with a wrong one."""
        password = None if request.has_header("Authorization") else password_of(request.host)
        if password is None:
            return None
        answer.close()
        request.add_unredirected_header("Authorization", credentials.authorization(password))
        return self.parent.open(request, timeout=request.timeout)


# A proxy named in the environment is for the world outside, never for 127.0.0.1.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _SignIn())


def read(url: str, *, timeout: float = 5) -> str | None:
    """The text of a page, ``None`` if it does not answer with success within the timeout."""
    try:
        request = urllib.request.Request(url)  # noqa: S310  a part's own page
        with direct.open(request, timeout=timeout) as answer:
            text: str = answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return None
    except FAULTS:
        return None
    return text


Texts = Mapping[str, str | None]
"""What `read` returned, by page."""


def read_all(wanted: Iterable[str]) -> Texts:
    """Read pages at the same time, so that those that hang cost one timeout together."""
    pages = list(dict.fromkeys(wanted))
    with ThreadPoolExecutor(max_workers=len(pages) or 1) as pool:
        return dict(zip(pages, pool.map(read, pages), strict=True))


def require(part: str, base: str, path: str) -> str:
    """The text of a page of a part of the stack, at this base URL. Raises Refused."""
    text = read(base + path)
    if text is None:
        raise Refused(unanswered(part, base))
    return text


class Answer(NamedTuple):
    """What came back for a POST: whether it was done, and the text."""

    done: bool
    text: str


def lacks_web_page(page: str | None) -> bool:
    """Whether Alertmanager's text at ``/`` says that it has no web page, as Debian's package does."""
    return page is not None and "<script" not in page


def post(url: str, value: Any = None, *, timeout: float = 10, method: str = "POST") -> Answer | None:
    """POST a value, if any, as JSON; returns ``None`` if nothing answers within the timeout."""
    body = None if value is None else json.dumps(value).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, kind, method=method)  # noqa: S310  a part's own page
    try:
        with direct.open(request, timeout=timeout) as answer:
            return Answer(done=True, text=answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as refusal:
        text = refusal.read().decode("utf-8", "replace").strip()
        return Answer(done=False, text=text or str(refusal))
    except FAULTS:
        return None


def order(url: str, value: Any = None, *, timeout: float = 10, method: str = "POST") -> str | None:
    """The same for callers that need no more than ``""`` for success, and what it says otherwise."""
    answer = post(url, value, timeout=timeout, method=method)
    return answer and ("" if answer.done else answer.text)


def unanswered(part: str, url: str) -> str:
    """The message about a part of the stack that does not answer."""
    return (
        f"{part} does not answer at {url}. Expected: the one that `make up` starts. "
        "Fix: `make up`; `make status` shows the state of each part."
    )


def metric(text: str, name: str) -> float | None:
    """The value of a metric without labels on a metrics page."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
