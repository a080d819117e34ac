"""Reads pages of the stack's own parts."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from typing import Any

FAULTS = (OSError, ValueError, http.client.HTTPException)
"""What an answer may end with; the last when a part stops in the middle of one."""

# A proxy named in the environment is for the world outside, never for 127.0.0.1.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read(url: str, *, timeout: float = 5) -> str | None:
    """The text of a page, ``None`` when it does not answer with success within so many seconds."""
    try:
        with direct.open(url, timeout=timeout) as answer:
            text: str = answer.read().decode("utf-8", "replace")
    except FAULTS:
        return None
    return text


def order(url: str, value: Any = None, *, timeout: float = 10) -> str | None:
    """POST a value, if any, as JSON; returns ``""`` for success, else what it says, ``None`` if nothing."""
    body = None if value is None else json.dumps(value).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, kind, method="POST")  # noqa: S310  a part's own page
    try:
        with direct.open(request, timeout=timeout):
            return ""
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode("utf-8", "replace").strip() or str(refusal)
    except FAULTS:
        return None


def metric(text: str, name: str) -> float | None:
    """The value of a metric without labels on a metrics page."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
