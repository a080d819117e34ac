"""Where the links of the pages lead.

Those of our own are paths below the exporter's address, without a slash before them: pages write them
relative to where they are, so that a proxy may serve them below a path of its own.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

PAUSED = {"refresh": "off"}


def home(*, paused: bool = False) -> str:
    """The list of all runs."""
    return _query(PAUSED if paused else {})


def page(run: str, *, paused: bool = False) -> str:
    """The page of a run. Names hold slashes and whatever else a path may."""
    return f"run/{quote(run, safe='')}{_query(PAUSED if paused else {})}"


def series(run: str, signal: str) -> str:
    """A signal of a run as JSON."""
    return f"api/v1/runs/{quote(run, safe='')}/series{_query({'signal': signal})}"


def outside(link: str) -> str:
    """A link that someone else wrote, if a browser may follow it; else nothing."""
    try:
        return link if urlsplit(link).scheme in ("http", "https") else ""
    except ValueError:
        return ""


def dashboard(link: str) -> str:
    """The same for a dashboard of Grafana: without one, alerts lead to our pages, where the reader is."""
    return outside(link) if "/d/" in link else ""


def _query(parts: dict[str, str]) -> str:
    return f"?{urlencode(parts)}" if parts else ""
