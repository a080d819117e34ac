"""Reads pages of the stack's own parts."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

# A proxy named in the environment is for the world outside, never for 127.0.0.1.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read(url: str, *, timeout: float = 5) -> str | None:
    """The text of a page, ``None`` when it does not answer with success within so many seconds."""
    try:
        with _direct.open(url, timeout=timeout) as answer:
            text: str = answer.read().decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    return text


def metric(text: str, name: str) -> float | None:
    """The value of a metric without labels on a metrics page."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
