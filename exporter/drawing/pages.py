"""Pages made of templates: everything that they show is escaped, and what is missing is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from exporter.drawing import axis, svg
from exporter.drawing.chart import Band, Chart, by_alert
from exporter.installation import adapt

MOST_SPANS = 3

TEMPLATES = Path(__file__).with_name("templates")


class Entry(NamedTuple):
    """Words, and the class of the line or span that they are about."""

    look: str
    words: str


def legend(chart: Chart) -> Iterator[Entry]:
    """Yield first the curves, then the limits with their values at the end, then the alerts."""
    for number, curve in enumerate(chart.curves):
        yield Entry(svg.curve_class(number), curve.name)
    at = svg.scale(chart)
    for number, limit in enumerate(chart.limits):
        name = f"limit of {limit.name}" if limit.name else "limit"
        value = axis.written(limit.values[-1], chart.unit)
        place = "" if any(map(at.shows, limit.values)) else ", off the chart"
        yield Entry(svg.limit_class(number, limit), f"{name}: {value}{place} ({limit.severity})")
    for mark in chart.marks:
        if chart.first <= mark.step <= chart.last:
            yield Entry("happened", f"step {mark.step}: {mark.words}")
    for times in by_alert(chart.bands):
        first = times[0]
        words = f"{first.alert}, {first.severity}: {spans(times)}"
        yield Entry(f"band {svg.severity_class(first.severity)}", words)


def spans(times: Sequence[Band]) -> str:
    """Return from which steps to which an alert lasted, in words."""
    shown = [f"{band.first_step} to {band.last_step}" for band in times[:MOST_SPANS]]
    more = len(times) - len(shown)
    return f"steps {', '.join(shown)}" + (f" and {more} times more" if more else "")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 run``, ``2 runs``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def counts(noun: str, kinds: Mapping[str, int]) -> str:
    """Return how many there are of each kind, without zeros: ``3 runs: 1 critical, 2 fine.``."""
    parts = [f"{number} {kind}" for kind, number in kinds.items() if number]
    return f"{plural(sum(kinds.values()), noun)}: {', '.join(parts)}."


class _Loader(jinja2.FileSystemLoader):
    """Reads templates with the commands that they name as they are called here."""

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        source, path, current = super().get_source(environment, template)
        return adapt(source), path, current


def environment(folder: Path) -> jinja2.Environment:
    """Return templates of a folder, which may use those of charts as well: ``chart.html.j2``, ``*.css``."""
    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=_Loader([folder, TEMPLATES]),
    )
    made.globals["draw"] = lambda chart: Markup(svg.draw(chart))  # noqa: S704  (it escapes what it is given)
    made.globals["legend"] = legend
    return made
