"""Pages made of templates: everything that they show is escaped, and what is missing is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from exporter.drawing import axis, severity, svg
from exporter.drawing.chart import Band, Chart, by_alert
from exporter.installation import adapt

MOST_SPANS = 3


class Entry(NamedTuple):
    """Words, and the class of the line or span that they are about."""

    look: str
    words: str


def legend(chart: Chart) -> Iterator[Entry]:
    """First the curves, then the limits with their values at the end, then the alerts."""
    for number, curve in enumerate(chart.curves):
        yield Entry(svg.look(number), curve.name)
    yield from _limits(chart)
    for times in by_alert(chart.bands):
        first = times[0]
        words = f"{first.alert}, {first.severity}: {spans(times)}"
        yield Entry(f"band {severity.look(first.severity)}", words)


def _limits(chart: Chart) -> Iterator[Entry]:
    at = svg.scale(chart)
    for limit in chart.limits:
        name = f"limit of {limit.name}" if limit.name else "limit"
        value = axis.written(limit.values[-1], chart.unit)
        place = "" if any(map(at.shows, limit.values)) else ", off the chart"
        yield Entry(f"limit {severity.look(limit.severity)}", f"{name}: {value}{place} ({limit.severity})")


def spans(times: Sequence[Band]) -> str:
    """From which steps to which an alert lasted, in words."""
    shown = [f"{band.first_step} to {band.last_step}" for band in times[:MOST_SPANS]]
    more = len(times) - len(shown)
    return f"steps {', '.join(shown)}" + (f" and {more} times more" if more else "")


TEMPLATES = Path(__file__).with_name("templates")


class _Loader(jinja2.FileSystemLoader):
    """Reads templates with the commands that they name as they are called here."""

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        source, path, current = super().get_source(environment, template)
        return adapt(source), path, current


def environment(folder: Path) -> jinja2.Environment:
    """Templates of a folder, which may use those of charts as well: ``chart.html.j2``, ``*.css``."""
    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=_Loader([folder, TEMPLATES]),
    )
    made.globals |= {"draw": _drawn, "legend": legend}
    return made


def _drawn(chart: Chart) -> Markup:
    return Markup(svg.draw(chart))  # noqa: S704  (it escapes what it is given)
