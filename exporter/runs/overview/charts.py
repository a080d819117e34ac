"""Charts over training steps as SVG: the light page's, and those of a backtest's report.

Colours are left to the page: an element says what it is by its class. All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from exporter.installation import adapt
from exporter.runs.model.history import LARGEST, Point

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
MOST_POINTS = 400  # points of one curve: a chart is not wider than that
SEVERITIES = ("critical", "warning", "info")  # the worst first


@dataclass(frozen=True)
class Curve:
    """A line's pieces, broken at gaps and steps back; ``severity`` is of the alert whose limit it is."""

    name: str
    pieces: tuple[tuple[Point, ...], ...]
    severity: str = ""

    @property
    def values(self) -> list[float]:
        """All that is drawn."""
        return [value for piece in self.pieces for _, value in piece]


@dataclass(frozen=True)
class Band:
    """An alert fired from one step to another."""

    alert: str
    severity: str
    first_step: int
    last_step: int


@dataclass(frozen=True)
class Mark:
    """What happened to the run at a step: a restart, an operator's mark, an action."""

    step: int
    words: str


@dataclass(frozen=True)
class Chart:
    """A panel filled with a run; ``low`` and ``high`` are where its axis ends, if that is fixed."""

    title: str
    description: str
    unit: str
    low: float | None
    high: float | None
    first: int
    last: int
    curves: tuple[Curve, ...]
    limits: tuple[Curve, ...]
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...] = ()


def rank(severity: str) -> int:
    """Return the place of a severity among ours, the worst first; an unknown one comes last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def by_alert(fired: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return bands, or alerts of a backtest, by alert: the worst severity first, then the earliest."""

    def key(alert: Any) -> tuple[int, str, str]:
        return rank(alert.severity), alert.severity, alert.alert

    together = [tuple(times) for _, times in groupby(sorted(fired, key=key), key=key)]
    return sorted(together, key=lambda times: (rank(times[0].severity), times[0].first_step))


def curve(name: str, values: Mapping[int, float], steps: Sequence[int], severity: str = "") -> Curve:
    """Return the curve of values by record (the first is 1), of which these are the steps."""
    points = [(step, values.get(record, math.nan)) for record, step in enumerate(steps, 1)]
    return Curve(name, _pieces(points), severity)


def thinned(curve: Curve) -> Curve:
    """Return the same curve with at most ``MOST_POINTS`` points; extremes are kept."""
    points = [point for piece in curve.pieces for point in (*piece, (0, math.nan))]
    return Curve(curve.name, _pieces(points), curve.severity)


def _pieces(points: Sequence[Point]) -> tuple[tuple[Point, ...], ...]:
    """Return the points in pieces; of each stretch of many the lowest and the highest, in their order."""
    finite = [point if abs(point[1]) < LARGEST else None for point in points]
    if len(points) > MOST_POINTS:
        width = math.ceil(2 * len(points) / MOST_POINTS)
        every, finite = finite, []
        for start in range(0, len(points), width):
            there = [point for point in every[start : start + width] if point is not None]
            values = [value for _, value in there]
            ends = {values.index(min(values)), values.index(max(values))} if values else set()
            finite += [there[place] for place in sorted(ends)] or [None]
    pieces: list[list[Point]] = []
    before = None
    for point in finite:
        if point is not None:
            if before is None or point[0] < before[0]:
                pieces.append([])
            pieces[-1].append(point)
        before = point
    return tuple(map(tuple, pieces))


WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 104, 684, 16, 280
"""Where the curves are, in units of the picture. A phone shows some two of these in a pixel."""


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
    """Return the plane of all curves, and of each limit not further away than they are high."""
    values = [value for curve in chart.curves for value in curve.values]
    low, high = min(values), max(values)
    air = 0.05 * (high - low) or 0.5 * abs(high) or 1  # where the panel sets no end
    low = low - air if chart.low is None else min(chart.low, low)
    high = high + air if chart.high is None else max(chart.high, high)
    reach = high - low
    limits = (value for limit in chart.limits for value in limit.values)
    near = [value for value in limits if low - reach <= value <= high + reach]
    alone = 0.5 * (chart.first == chart.last)
    return Scale(chart.first - alone, chart.last + alone, min([low, *near]), max([high, *near]))


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"))


def round_values(low: float, high: float, unit: str, about: int) -> list[float]:
    """Return values that are round in the unit in which they are written."""
    largest = max(abs(low), abs(high))
    size = next((size for size, _ in _BINARY if largest >= size), 1) if unit == "bytes" else 1
    return [tick * size for tick in round_multiples(low / size, high / size, about)]


def round_multiples(low: float, high: float, about: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten: this number between two, or up to twice that."""
    widest = max((high - low) / about * (1 + 1e-9), 1e-300)
    power = 10.0 ** math.floor(math.log10(widest))
    step = next(factor * power for factor in (5, 2, 1) if factor * power <= widest)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # 3 * 0.1 is not 0.3
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def round_steps(first: int, last: int, about: int) -> list[int]:
    """Return round training steps between two, likewise; all of them if they are few."""
    if last - first < 2 * about:
        return list(range(first, last + 1))
    return [round(tick) for tick in round_multiples(first, last, about)]


def format_number(value: float, unit: str = "short") -> str:
    """Return a number in four digits, with Grafana's unit of this name."""
    if unit == "percentunit":
        return f"{100 * value:.4g} %"
    size, after = 1.0, " s" if unit == "s" else ""
    if unit == "bytes":
        size, after = next((each for each in _BINARY if abs(value) >= each[0]), (1.0, " B"))
    elif 10_000 <= abs(value) < 1e15:
        size, prefix = next(each for each in _PREFIXES if abs(value) >= each[0])
        after = prefix + after
    return f"{value / size:.4g}{after}"


def severity_class(severity: str) -> str:
    """Return the class by which a severity gets its colour; an unknown one looks like the mildest."""
    return severity if severity in SEVERITIES else SEVERITIES[-1]


def _lines(chart: Chart) -> Iterator[tuple[Curve, str]]:
    """Yield curves, then limits, with the class of each: six colours, and four patterns of dashes."""
    for number, each in enumerate(chart.curves):
        yield each, f"curve c{number % 6}"
    for number, each in enumerate(chart.limits):
        yield each, f"limit {severity_class(each.severity)} d{number % 4}"


def _marks(chart: Chart) -> Iterator[tuple[Mark, str]]:
    for mark in chart.marks:
        if chart.first <= mark.step <= chart.last:
            yield mark, f"step {mark.step}: {mark.words}"


def draw(chart: Chart) -> str:
    """Return the picture of a chart, as an element of a page."""
    at = scale(chart)
    parts = []
    # The worst on top, and without letting anything through: colours that mix mean nothing.
    for band in sorted(chart.bands, key=lambda band: -rank(band.severity)):
        begin, end = sorted((at.x(band.first_step), at.x(band.last_step)))
        begin = min(begin, RIGHT - 4)  # an alert of one step can be seen
        title = escape(f"{band.alert}, {band.severity}: steps {band.first_step} to {band.last_step}")
        parts.append(
            f'<rect class="band {severity_class(band.severity)}" x="{begin}" y="{TOP}" '
            f'width="{max(end - begin, 4)}" height="{BOTTOM - TOP}"><title>{title}</title></rect>'
        )
    for value in round_values(at.low, at.high, chart.unit, 3):
        y, text = at.y(value), escape(format_number(value, chart.unit))
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 8}" text-anchor="end">{text}</text>')
    for step in round_steps(chart.first, chart.last, 3):
        x, text = at.x(step), escape(format_number(step))
        parts.append(f'<path class="grid" d="M{x} {BOTTOM}v8"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>')
    for mark, words in _marks(chart):
        place = f"M{at.x(mark.step)} {TOP}V{BOTTOM}"
        parts.append(f'<path class="happened" d="{place}"><title>{escape(words)}</title></path>')
    parts += [_line(each, name, at) for each, name in _lines(chart)]
    title = quoteattr(f"{chart.title} over training steps {chart.first} to {chart.last}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f"aria-label={title}>{''.join(parts)}</svg>"
    )


def _line(curve: Curve, name: str, at: Scale) -> str:
    """Return pieces as lines, broken where a limit lies off the chart.

    What stands alone is a dot, since a line of one point can hardly be seen. Each point is written by its
    distance from the last, and left out between two others of its height: most limits are level.
    """
    lines = dots = ""
    for piece in curve.pieces:
        for shown, points in groupby(piece, key=lambda point: at.shows(point[1])):
            places = [(at.x(step), at.y(value)) for step, value in points]
            (x, y), rest = places[0], places[1:]
            if not shown:
                continue
            if not rest:
                dots += f"M{x} {y}h0"
                continue
            lines += f"M{x} {y}"
            for index, (next_x, next_y) in enumerate(rest, 1):
                if index + 1 < len(places) and places[index - 1][1] == next_y == places[index + 1][1]:
                    continue
                lines += f"l{next_x - x} {next_y - y}"
                x, y = next_x, next_y
    drawn = ((name, lines), (f"{name} dot", dots))
    return "".join(f'<path class="{each}" d="{path}"/>' for each, path in drawn if path)


class Entry(NamedTuple):
    """Words of a legend, and the class of the line or span that they are about."""

    look: str
    words: str


def legend(chart: Chart) -> Iterator[Entry]:
    """Yield first the curves, then the limits with their values at the end, then the alerts."""
    at = scale(chart)
    for each, look in _lines(chart):
        if look.startswith("curve"):
            yield Entry(look, each.name)
            continue
        name = f"limit of {each.name}" if each.name else "limit"
        value = format_number(each.values[-1], chart.unit)
        place = "" if any(map(at.shows, each.values)) else ", off the chart"
        yield Entry(look, f"{name}: {value}{place} ({each.severity})")
    for _, words in _marks(chart):
        yield Entry("happened", words)
    for times in by_alert(chart.bands):
        steps = ", ".join(f"{band.first_step} to {band.last_step}" for band in times[:3])
        more = f" and {len(times) - 3} times more" if len(times) > 3 else ""
        words = f"{times[0].alert}, {times[0].severity}: steps {steps}{more}"
        yield Entry(f"band {severity_class(times[0].severity)}", words)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 run``, ``2 runs``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def run_counts(kinds: Mapping[str, int]) -> str:
    """Return how many runs there are of each kind, without zeros: ``3 runs: 1 critical, 2 fine.``."""
    parts = [f"{number} {kind}" for kind, number in kinds.items() if number]
    return f"{plural(sum(kinds.values()), 'run')}: {', '.join(parts)}."


def safe(html: str) -> Markup:
    """Return text that a template does not escape: what we wrote, and escaped ourselves."""
    from markupsafe import Markup  # noqa: PLC0415  (comes with Jinja)

    return Markup(html)  # noqa: S704


def environment(folder: Path) -> jinja2.Environment:
    """Return the templates of a folder, which may use those of charts; what is missing is an error."""
    import jinja2  # noqa: PLC0415  (8 MB, and only for those who open a page)

    def load(name: str) -> str | None:
        file = next((file for file in (folder / name, TEMPLATES / name) if file.is_file()), None)
        return adapt(file.read_text(encoding="utf-8")) if file else None

    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(load),
    )
    made.globals["draw"] = lambda chart: safe(draw(chart))
    made.globals["legend"] = legend
    return made
