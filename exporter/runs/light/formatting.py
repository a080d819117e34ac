"""Numbers, times and links as the pages show them."""

from __future__ import annotations

import math
import time
from urllib.parse import quote, urlencode, urlsplit

from exporter.runs.overview import charts

NOTHING = "-"  # Shown where there is no number
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def value(number: float | None, unit: str = "short") -> str:
    """A number in four digits, with Grafana's unit of this name."""
    if number is None:
        return NOTHING
    if math.isfinite(number):
        return charts.format_number(number, unit)
    if math.isnan(number):
        return "NaN"
    return "Inf" if number > 0 else "-Inf"


def span(seconds: float) -> str:
    """A duration in the largest unit that fits: ``12 s``, ``3 min``."""
    whole = max(0.0, seconds)
    size, unit = next((each for each in _UNITS if whole >= each[0]), _UNITS[-1])
    return f"{int(whole / size)} {unit}"


def clock(moment: float | None) -> str:
    """A time of today, or of another day with its date; in the zone of this machine."""
    if moment is None:
        return NOTHING
    try:
        then = time.localtime(moment)
    except (OverflowError, OSError, ValueError):
        return NOTHING
    today = time.strftime("%F", then) == time.strftime("%F")
    return time.strftime("%T" if today else "%F %T", then)


def zone() -> str:
    """The name of this machine's time zone."""
    return time.strftime("%Z")


# Links of our own are paths below the exporter's address, without a slash before them: pages write them
# relative to where they are, so that a proxy may serve them below a path of its own.


def home(*, paused: bool = False) -> str:
    """The path of the list of all runs."""
    return "?refresh=off" if paused else ""


def page(run: str, cluster: str | None = None, *, paused: bool = False) -> str:
    """The path of a run's page; names hold slashes and whatever else a path may."""
    query = ({"cluster": cluster} if cluster else {}) | ({"refresh": "off"} if paused else {})
    return f"run/{quote(run, safe='')}{'?' * bool(query)}{urlencode(query)}"


def series(run: str, signal: str, cluster: str | None = None) -> str:
    """The path of a signal of a run as JSON."""
    query = {"signal": signal} | ({"cluster": cluster} if cluster else {})
    return f"api/v1/runs/{quote(run, safe='')}/series?{urlencode(query)}"


def elsewhere(pattern: str, node: str, run: str, cluster: str | None) -> str:
    """A link to where more is known of a run of a node: ``pattern`` with these in their places."""
    for name, text in (("node", node), ("run", run), ("cluster", cluster or "")):
        pattern = pattern.replace(f"{{{name}}}", quote(text, safe=""))
    return pattern


def outside(link: str) -> str:
    """A link that someone else wrote, if a browser may follow it; else nothing."""
    try:
        return link if urlsplit(link).scheme in ("http", "https") else ""
    except ValueError:
        return ""


def dashboard(link: str) -> str:
    """The same for a dashboard of Grafana; without one, alerts lead to our own pages."""
    return outside(link) if "/d/" in link else ""
