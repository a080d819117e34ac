"""Where the links of the pages lead."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

PAUSED = {"refresh": "off"}


def home(*, paused: bool = False) -> str:
    """The list of all runs."""
    return "/" + _query(PAUSED if paused else {})


def page(run: str, *, paused: bool = False) -> str:
    """The page of a run. Names hold slashes and whatever else a path may."""
    return f"/run/{quote(run, safe='')}" + _query(PAUSED if paused else {})


def series(run: str, signal: str) -> str:
    """A signal of a run as JSON."""
    return f"/api/v1/runs/{quote(run, safe='')}/series" + _query({"signal": signal})


def outside(link: str) -> str:
    """A link that somebody else wrote, if a browser may follow it; else nothing."""
    try:
        return link if urlsplit(link).scheme in ("http", "https") else ""
    except ValueError:
        return ""


def _query(parts: dict[str, str]) -> str:
    return f"?{urlencode(parts)}" if parts else ""
