"""A chart as SVG: curves over training steps, limits dashed, the spans of alerts shaded.

Colours are left to the page: an element says what it is by its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from exporter.drawing import axis
from exporter.drawing.chart import SEVERITIES, Chart, Curve, rank

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 104, 684, 16, 280
"""Where the curves are, in units of the picture. A phone shows some two of these in a pixel."""

LEAST_SPAN = 4
"""How wide an alert of one step is shaded, that it can be seen."""

BEYOND = 1.0
"""How far beyond the curves a limit may lie to be drawn, in heights of the curves: else they were flat."""

_COLOURS = 6
"""The page has so many for curves."""

_DASHES = 4
"""And so many patterns of dashes for limits."""


@dataclass(frozen=True)
class Scale:
    """From steps and values to places in the picture."""

    first: float
    last: float
    low: float
    high: float

    def x(self, step: float) -> int:
        return round(LEFT + (step - self.first) / (self.last - self.first) * (RIGHT - LEFT))

    def y(self, value: float) -> int:
        return round(BOTTOM - (value - self.low) / (self.high - self.low) * (BOTTOM - TOP))

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def scale(chart: Chart) -> Scale:
    """Return the part of the plane that holds all curves, and each limit that is not far off."""
    low, high = _spread([value for curve in chart.curves for value in curve.values], chart)
    reach = BEYOND * (high - low)
    limits = (value for limit in chart.limits for value in limit.values)
    near = [value for value in limits if low - reach <= value <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    alone = 0.5 * (chart.first == chart.last)
    return Scale(chart.first - alone, chart.last + alone, low, high)


def _spread(values: list[float], chart: Chart) -> tuple[float, float]:
    """Return lowest and highest, with some air where the panel sets no end."""
    low, high = min(values), max(values)
    air = 0.05 * (high - low) or 0.5 * abs(high) or 1
    return (
        low - air if chart.low is None else min(chart.low, low),
        high + air if chart.high is None else max(chart.high, high),
    )


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
    for value in axis.values(at.low, at.high, chart.unit, 3):
        y = at.y(value)
        text = escape(axis.written(value, chart.unit))
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 8}" text-anchor="end">{text}</text>'
    for step in axis.steps(chart.first, chart.last, 3):
        x = at.x(step)
        yield f'<path class="grid" d="M{x} {BOTTOM}v8"/>'
        yield f'<text x="{x}" y="{HEIGHT - 6}" text-anchor="middle">{escape(axis.written(step))}</text>'


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
