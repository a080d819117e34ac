"""The pages as HTML, from their templates."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from exporter.drawing import pages, severity
from exporter.drawing.chart import Chart
from exporter.drawing.curve import thinned
from exporter.drawing.tally import count
from exporter.runs.light import formatting, links
from exporter.runs.light.card import Card, counted, description
from exporter.runs.overview.models import Firing, Health, RunStory, State, Unshown

WIDTH = 100
"""In units of the picture, which the page stretches."""


class Zone(NamedTuple):
    """A part of the band, from one place to another, and what a value there is."""

    state: State
    start: int
    end: int


class Gauge(NamedTuple):
    """The parts of the band, and where the value is."""

    zones: tuple[Zone, ...]
    mark: int


def gauge(health: Health) -> Gauge | None:
    """``None`` where there is no value, or no limit to hold it against."""
    limits = sorted({limit for limit in _limits(health) if limit is not None and isfinite(limit)})
    value = health.judged
    if value is None or not isfinite(value) or not limits:
        return None
    low, high = _ends([*limits, value])

    def place(number: float) -> int:
        return round((number - low) / (high - low) * WIDTH)

    cuts = [low, *limits, high]
    zones = [Zone(_state(health, (a + b) / 2), place(a), place(b)) for a, b in pairwise(cuts)]
    return Gauge(tuple(zone for zone in zones if zone.start < zone.end), place(value))


def _limits(health: Health) -> tuple[float | None, ...]:
    return health.critical.low, health.warning.low, health.warning.high, health.critical.high


def _ends(numbers: list[float]) -> tuple[float, float]:
    """Some air on both sides; what is never negative does not get a negative end by that."""
    low, high = min(numbers), max(numbers)
    air = 0.25 * (high - low) or 0.5 * abs(high) or 1.0
    return (max(0.0, low - air) if low >= 0 else low - air), high + air


def _state(health: Health, value: float) -> State:
    if _beyond(value, health.critical.low, health.critical.high):
        return "critical"
    return "warning" if _beyond(value, health.warning.low, health.warning.high) else "ok"


def _beyond(value: float, low: float | None, high: float | None) -> bool:
    return (low is not None and value < low) or (high is not None and value > high)


TEMPLATES = Path(__file__).with_name("templates")

SECONDS = 10
"""Between two looks at a page that refreshes itself: time to read, and soon enough for steps of seconds."""


class Pages:
    """Makes pages. ``watched`` are the folders in which runs are looked for."""

    def __init__(self, watched: Sequence[str]) -> None:
        self._environment = pages.environment(TEMPLATES)
        self._environment.globals |= {
            "links": links,
            "words": formatting,
            "count": count,
            "gauge": gauge,
            "description": description,
            "look": severity.look,
            "watched": watched,
            "seconds": SECONDS,
        }
        style = self._environment.get_template("style.css.j2").render()
        self._environment.globals["style"] = Markup(style)  # noqa: S704  (nothing in it is from outside)
        digest = b64encode(sha256(style.encode()).digest()).decode()
        self.style, self.seconds = f"sha256-{digest}", SECONDS

    def runs(
        self,
        cards: Sequence[Card],
        others: Sequence[Firing],
        unshown: Unshown,
        trouble: str,
        as_of: str,
        *,
        faults: Sequence[str],
    ) -> bytes:
        """All runs, and alerts about none; ``trouble`` is what keeps Prometheus from reporting alerts.

        ``faults`` are what the watchdog finds wrong with the stack, in words.
        ``as_of`` is the time in words, for a page that does not refresh itself.
        """
        values = {"cards": cards, "others": others, "counted": counted(cards), "trouble": trouble}
        return self._made("runs", "./", as_of=as_of, unshown=unshown, faults=faults, **values)

    def run(self, card: Card, story: RunStory, trouble: str, as_of: str, *, faults: Sequence[str]) -> bytes:
        """One run, with its curves."""
        return self._made(
            "run",
            "../",
            card=card,
            charts=[drawn for chart in story.charts if (drawn := drawable(chart)).curves],
            episodes=story.episodes,
            rows=story.rows,
            candidates=story.candidates,
            signals=signals(story),
            trouble=trouble,
            faults=faults,
            as_of=as_of,
        )

    def unknown(self, name: str, near: Sequence[str], unshown: Unshown) -> bytes:
        """There is no run of that name, or not yet."""
        return self._made("unknown", "../", name=name, near=near, unshown=unshown)

    def _made(self, template: str, root: str, **values: Any) -> bytes:
        page = self._environment.get_template(f"{template}.html.j2").render(values, root=root)
        return page.encode("utf-8", "backslashreplace")


def drawable(chart: Chart) -> Chart:
    """With as many points as can be seen, and without lines that have none."""
    curves, limits = (
        tuple(line for each in lines if (line := thinned(each)).pieces)
        for lines in (chart.curves, chart.limits)
    )
    return replace(chart, curves=curves, limits=limits)


def signals(story: RunStory) -> list[str]:
    """All that any of the last steps tells, what everyone looks at first."""
    logged = {signal for row in story.rows for signal in row.values}
    first = [health.signal for health in story.summary.healths if health.signal in logged]
    return [*first, *sorted(logged - set(first))]
