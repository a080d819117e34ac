"""A chart as SVG: curves over training steps, limits dashed, the spans of alerts shaded.

Colours are left to the page: an element says what it is by its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from exporter.drawing import axis, severity
from exporter.drawing.chart import Chart
from exporter.drawing.curve import Curve

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 104, 684, 16, 280
"""Where the curves are, in units of the picture. A phone shows some two of these in a pixel."""

LEAST_SPAN = 4
"""How wide an alert of one step is shaded, that it can be seen."""

BEYOND = 1.0
"""How far beyond the curves a limit may lie to be drawn, in heights of the curves: else they were flat."""

_COLOURS = 6
"""The page has so many for curves."""


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
    """The part of the plane that holds all curves, and each limit that is not far off."""
    low, high = _spread([value for curve in chart.curves for value in curve.values], chart)
    reach = BEYOND * (high - low)
    limits = (value for limit in chart.limits for value in limit.values)
    near = [value for value in limits if low - reach <= value <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    alone = 0.5 * (chart.first == chart.last)
    return Scale(chart.first - alone, chart.last + alone, low, high)


def _spread(values: list[float], chart: Chart) -> tuple[float, float]:
    """Lowest and highest, with some air where the panel sets no end."""
    low, high = min(values), max(values)
    air = 0.05 * (high - low) or 0.5 * abs(high) or 1
    return (
        low - air if chart.low is None else min(chart.low, low),
        high + air if chart.high is None else max(chart.high, high),
    )


def look(number: int) -> str:
    """The class of a chart's curve, from 0 on, by which it gets its colour."""
    return f"curve c{number % _COLOURS}"


def draw(chart: Chart) -> str:
    """The picture of a chart, as an element of a page."""
    at = scale(chart)
    title = quoteattr(f"{chart.title} over training steps {chart.first} to {chart.last}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f"aria-label={title}>{''.join(_parts(chart, at))}</svg>"
    )


def _parts(chart: Chart, at: Scale) -> Iterator[str]:
    yield from _bands(chart, at)
    yield from _grid(chart, at)
    for number, curve in enumerate(chart.curves):
        yield _line(curve, look(number), at)
    for limit in chart.limits:
        yield _line(limit, f"limit {severity.look(limit.severity)}", at)


def _bands(chart: Chart, at: Scale) -> Iterator[str]:
    # the worst on top, and without letting anything through: colours that mix mean nothing
    for band in sorted(chart.bands, key=lambda band: -severity.rank(band.severity)):
        begin, end = sorted((at.x(band.first_step), at.x(band.last_step)))
        begin = min(begin, RIGHT - LEAST_SPAN)
        width = max(end - begin, LEAST_SPAN)
        title = escape(f"{band.alert}, {band.severity}: steps {band.first_step} to {band.last_step}")
        yield (
            f'<rect class="band {severity.look(band.severity)}" x="{begin}" y="{TOP}" width="{width}" '
            f'height="{BOTTOM - TOP}"><title>{title}</title></rect>'
        )


def _grid(chart: Chart, at: Scale) -> Iterator[str]:
    for value in axis.values(at.low, at.high, chart.unit, 3):
        y = at.y(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield _text(axis.written(value, chart.unit), LEFT - 8, y + 8, "end")
    for step in axis.steps(chart.first, chart.last, 3):
        x = at.x(step)
        yield f'<path class="grid" d="M{x} {BOTTOM}v8"/>'
        yield _text(axis.written(step), x, HEIGHT - 6, "middle")


def _text(text: str, x: int, y: int, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(curve: Curve, name: str, at: Scale) -> str:
    """Pieces as lines; what stands alone as dots, since a line of one point can hardly be seen."""
    pieces = [piece for points in _visible(curve, at) if (piece := _turns(points))]
    lines = _strokes(name, [piece for piece in pieces if len(piece) > 1])
    return lines + _strokes(f"{name} dot", [piece for piece in pieces if len(piece) == 1])


def _strokes(name: str, pieces: list[list[tuple[int, int]]]) -> str:
    return f'<path class="{name}" d="{"".join(map(_path, pieces))}"/>' if pieces else ""


def _visible(curve: Curve, at: Scale) -> Iterator[list[tuple[int, int]]]:
    """The places of each piece; a limit is broken where it lies off the chart."""
    for piece in curve.pieces:
        places: list[tuple[int, int]] = []
        for step, value in piece:
            if at.shows(value):
                places.append((at.x(step), at.y(value)))
            else:
                yield places
                places = []
        yield places


def _turns(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without the points between two others of the same height: most limits are level."""
    return [
        point
        for index, point in enumerate(points)
        if not 0 < index < len(points) - 1 or not points[index - 1][1] == point[1] == points[index + 1][1]
    ]


def _path(points: list[tuple[int, int]]) -> str:
    """Each point by its distance from the last, which takes the fewest characters."""
    (x, y), *others = points
    moves = [f"M{x} {y}h0" if not others else f"M{x} {y}"]
    for next_x, next_y in others:
        moves.append(f"l{next_x - x} {next_y - y}")
        x, y = next_x, next_y
    return "".join(moves)
