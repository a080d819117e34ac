"""Charts as HTML: an SVG with its legend, and the templates of the pages that show them.

Colours are left to the page: an element says what it is by its class. Everything that pages show is escaped,
and what is missing is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import jinja2
from markupsafe import Markup

from exporter.drawing.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    SEVERITIES,
    TOP,
    WIDTH,
    Band,
    Chart,
    Curve,
    Scale,
    by_alert,
    format_number,
    rank,
    round_steps,
    round_values,
    scale,
)
from exporter.installation import adapt

LEAST_SPAN = 4
"""How wide an alert of one step is shaded, that it can be seen."""

_COLOURS = 6
"""The page has so many for curves."""

_DASHES = 4
"""And so many patterns of dashes for limits."""


def curve_class(number: int) -> str:
    """Return the class of a chart's curve, from 0 on, by which it gets its colour."""
    return f"curve c{number % _COLOURS}"


def severity_class(severity: str) -> str:
    """Return the class by which a severity gets its colour; an unknown one looks like the mildest."""
    return severity if severity in SEVERITIES else SEVERITIES[-1]


def limit_class(number: int, limit: Curve) -> str:
    """Return the class of a chart's limit, from 0 on, by which it gets its colour and its dashes."""
    return f"limit {severity_class(limit.severity)} d{number % _DASHES}"


def draw(chart: Chart) -> str:
    """Return the picture of a chart, as an element of a page."""
    at = scale(chart)
    title = quoteattr(f"{chart.title} over training steps {chart.first} to {chart.last}")
    parts = [*_bands(chart, at), *_grid(chart, at)]
    parts += _marks(chart, at)
    parts += [_line(curve, curve_class(number), at) for number, curve in enumerate(chart.curves)]
    parts += [_line(limit, limit_class(number, limit), at) for number, limit in enumerate(chart.limits)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f"aria-label={title}>{''.join(parts)}</svg>"
    )


def _bands(chart: Chart, at: Scale) -> Iterator[str]:
    # the worst on top, and without letting anything through: colours that mix mean nothing
    for band in sorted(chart.bands, key=lambda band: -rank(band.severity)):
        begin, end = sorted((at.x(band.first_step), at.x(band.last_step)))
        begin = min(begin, RIGHT - LEAST_SPAN)
        width = max(end - begin, LEAST_SPAN)
        title = escape(f"{band.alert}, {band.severity}: steps {band.first_step} to {band.last_step}")
        yield (
            f'<rect class="band {severity_class(band.severity)}" x="{begin}" y="{TOP}" width="{width}" '
            f'height="{BOTTOM - TOP}"><title>{title}</title></rect>'
        )


def _marks(chart: Chart, at: Scale) -> Iterator[str]:
    for mark in chart.marks:
        if chart.first <= mark.step <= chart.last:
            title = escape(f"step {mark.step}: {mark.words}")
            at_step = f"M{at.x(mark.step)} {TOP}V{BOTTOM}"
            yield f'<path class="happened" d="{at_step}"><title>{title}</title></path>'


def _grid(chart: Chart, at: Scale) -> Iterator[str]:
    for value in round_values(at.low, at.high, chart.unit, 3):
        y = at.y(value)
        text = escape(format_number(value, chart.unit))
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 8}" text-anchor="end">{text}</text>'
    for step in round_steps(chart.first, chart.last, 3):
        x = at.x(step)
        yield f'<path class="grid" d="M{x} {BOTTOM}v8"/>'
        yield f'<text x="{x}" y="{HEIGHT - 6}" text-anchor="middle">{escape(format_number(step))}</text>'


def _line(curve: Curve, name: str, at: Scale) -> str:
    """Return pieces as lines, broken where a limit lies off the chart.

    What stands alone is a dot, since a line of one point can hardly be seen.
    """
    lines = dots = ""
    for piece in curve.pieces:
        for shown, points in groupby(piece, key=lambda point: at.shows(point[1])):
            places = [(at.x(step), at.y(value)) for step, value in points]
            if shown and len(places) == 1:
                dots += f"M{places[0][0]} {places[0][1]}h0"
            elif shown:
                lines += _path(places)
    drawn = ((name, lines), (f"{name} dot", dots))
    return "".join(f'<path class="{each}" d="{path}"/>' for each, path in drawn if path)


def _path(points: list[tuple[int, int]]) -> str:
    """Return each point by its distance from the last, which takes the fewest characters.

    Points between two others of the same height are left out: most limits are level.
    """
    x, y = points[0]
    path = f"M{x} {y}"
    for index, (next_x, next_y) in enumerate(points[1:], 1):
        if index + 1 < len(points) and points[index - 1][1] == next_y == points[index + 1][1]:
            continue
        path += f"l{next_x - x} {next_y - y}"
        x, y = next_x, next_y
    return path


MOST_SPANS = 3

TEMPLATES = Path(__file__).with_name("templates")


class Entry(NamedTuple):
    """Words, and the class of the line or span that they are about."""

    look: str
    words: str


def legend(chart: Chart) -> Iterator[Entry]:
    """Yield first the curves, then the limits with their values at the end, then the alerts."""
    for number, curve in enumerate(chart.curves):
        yield Entry(curve_class(number), curve.name)
    at = scale(chart)
    for number, limit in enumerate(chart.limits):
        name = f"limit of {limit.name}" if limit.name else "limit"
        value = format_number(limit.values[-1], chart.unit)
        place = "" if any(map(at.shows, limit.values)) else ", off the chart"
        yield Entry(limit_class(number, limit), f"{name}: {value}{place} ({limit.severity})")
    for mark in chart.marks:
        if chart.first <= mark.step <= chart.last:
            yield Entry("happened", f"step {mark.step}: {mark.words}")
    for times in by_alert(chart.bands):
        first = times[0]
        words = f"{first.alert}, {first.severity}: {spans(times)}"
        yield Entry(f"band {severity_class(first.severity)}", words)


def spans(times: Sequence[Band]) -> str:
    """Return from which steps to which an alert lasted, in words."""
    shown = [f"{band.first_step} to {band.last_step}" for band in times[:MOST_SPANS]]
    more = len(times) - len(shown)
    return f"steps {', '.join(shown)}" + (f" and {more} times more" if more else "")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 run``, ``2 runs``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def run_counts(kinds: Mapping[str, int]) -> str:
    """Return how many runs there are of each kind, without zeros: ``3 runs: 1 critical, 2 fine.``."""
    parts = [f"{number} {kind}" for kind, number in kinds.items() if number]
    return f"{plural(sum(kinds.values()), 'run')}: {', '.join(parts)}."


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
    made.globals["draw"] = lambda chart: Markup(draw(chart))  # noqa: S704  (it escapes what it is given)
    made.globals["legend"] = legend
    return made
