"""Reads pages of the stack's own parts."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from exporter.door import backend_access
from stepwatch.schema.errors import Refused

FAULTS = (OSError, ValueError, http.client.HTTPException)
"""What an answer may end with; the last when a part stops in the middle of one."""

_UNANSWERED = {502, 504}
"""What the door says of a part behind it that does not answer."""

# A proxy named in the environment is for the world outside, never for 127.0.0.1.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read(page: str | Page, *, timeout: float = 5) -> str | None:
    """The text of a page, ``None`` if it does not answer with success within the timeout."""
    url, password_file = (page, "") if isinstance(page, str) else page
    try:
        headers = (
            {"Authorization": backend_access.authorization(Path(password_file))} if password_file else {}
        )
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  a part's own page
        with direct.open(request, timeout=timeout) as answer:
            text: str = answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return None
    except FAULTS:
        return None
    return text


class Page(NamedTuple):
    """A page, and the file with the password that it asks for, if it does."""

    url: str
    password_file: str = ""

    def __str__(self) -> str:
        return self.url


Texts = Mapping[str | Page, str | None]
"""What `read` returned, by page."""


def read_all(wanted: Iterable[str | Page]) -> Texts:
    """Read pages at the same time, so that those that hang cost one timeout together."""
    pages = list(dict.fromkeys(wanted))
    with ThreadPoolExecutor(max_workers=len(pages) or 1) as pool:
        return dict(zip(pages, pool.map(read, pages), strict=True))


def require(part: str, base: str, path: str) -> str:
    """The text of a page of a part of the stack, at this base URL.

    Raises:
        Refused: The part does not answer.
    """
    text = read(base + path)
    if text is None:
        raise Refused(unanswered(part, base))
    return text


class Answer(NamedTuple):
    """What came back for a POST: whether it was done, and the text."""

    done: bool
    text: str


def lacks_web_page(page: str | None) -> bool:
    """Whether an Alertmanager that answers with this text at ``/`` was built without its web page.

    Debian's package answers with a text in its place. The web page itself is a program in scripts.
    """
    return page is not None and "<script" not in page


def post(url: str, value: Any = None, *, timeout: float = 10) -> Answer | None:
    """POST a value, if any, as JSON; returns ``None`` if nothing answers within the timeout."""
    body = None if value is None else json.dumps(value).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, kind, method="POST")  # noqa: S310  a part's own page
    try:
        with direct.open(request, timeout=timeout) as answer:
            return Answer(done=True, text=answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as refusal:
        if refusal.code in _UNANSWERED:
            refusal.close()
            return None
        text = refusal.read().decode("utf-8", "replace").strip()
        return Answer(done=False, text=text or str(refusal))
    except FAULTS:
        return None


def order(url: str, value: Any = None, *, timeout: float = 10) -> str | None:
    """The same for callers that need no more than ``""`` for success, and what it says otherwise."""
    answer = post(url, value, timeout=timeout)
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
