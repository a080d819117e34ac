"""A chart as PNG, for robots of chats, which take no SVG. A library for it would weigh more than all else."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

from exporter.drawing.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Point,
    Scale,
    format_number,
    round_steps,
    round_values,
    scale,
)

_PALETTE = (
    (255, 255, 255),
    (230, 234, 239),
    (90, 102, 117),
    (26, 111, 192),
    (196, 32, 44),
    (179, 90, 0),
    (40, 100, 180),
)
_GRID, _QUIET, _CURVE = 1, 2, 3
_SEVERITY = {"critical": 4, "warning": 5, "info": 6}
_TOP = 40
"""Where the curves begin, below the title."""
_DASH = 12
_SCALE = 3
_WIDE, _HIGH = 4 * _SCALE, 5 * _SCALE
"""Of a sign, in pixels."""

# Signs of 3 by 5 dots, five octal digits each, one for a row. Letters have one form.
_KNOWN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ .-+%/_:()"
_DOTS = (
    "75557262277174771717557117471774757711227575775717"
    "25755656563444365556746477464434553557557222711152556554444757755655552555265644255636565534216722225555755552"
    "557755525555222712470000000002007000272051245112440000702020" + "1222142224"
)
_SIGNS = {sign: _DOTS[5 * number : 5 * number + 5] for number, sign in enumerate(_KNOWN)}
_UNKNOWN = "71202"


def draw(chart: Chart) -> bytes:
    """Return the picture of a chart: its curves, its limits dashed, and a title that names both."""
    at, canvas = scale(chart), _Canvas(WIDTH, HEIGHT)
    place = _Place(at)
    for value in round_values(at.low, at.high, chart.unit, 3):
        y = place.y(value)
        canvas.line((LEFT, y), (RIGHT, y), _GRID, 1)
        words = format_number(value, chart.unit)
        canvas.write(words, LEFT - 10 - len(words) * _WIDE, y - _HIGH // 2, _QUIET)
    for step in round_steps(chart.first, chart.last, 3):
        words = format_number(step)
        x = at.x(step)
        canvas.line((x, BOTTOM), (x, BOTTOM + 8), _QUIET, 1)
        canvas.write(words, min(x - len(words) * _WIDE // 2, WIDTH - len(words) * _WIDE), BOTTOM + 14, _QUIET)
    end = canvas.write(chart.title, LEFT, 12, _CURVE)
    for limit in chart.limits:
        colour = _SEVERITY.get(limit.severity, _SEVERITY["info"])
        end = canvas.write(
            f"limit {format_number(limit.values[-1], chart.unit)}", end + 2 * _WIDE, 12, colour
        )
        for piece in limit.pieces:
            shown = [point for point in piece if at.shows(point[1])]
            canvas.dashed(place.points(shown), colour)
    for curve in chart.curves:
        for piece in curve.pieces:
            canvas.path(place.points(piece), _CURVE)
    return canvas.encoded()


class _Place:
    """From steps and values to pixels: as in an SVG, below the title."""

    def __init__(self, at: Scale) -> None:
        self._at = at

    def y(self, value: float) -> int:
        part = (self._at.y(value) - TOP) / (BOTTOM - TOP)
        return round(_TOP + part * (BOTTOM - _TOP))

    def points(self, points: Sequence[Point]) -> list[tuple[int, int]]:
        return [(self._at.x(step), self.y(value)) for step, value in points]


class _Canvas:
    """An image with a palette."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._rows = [bytearray(width) for _ in range(height)]

    def fill(self, x: int, y: int, width: int, height: int, colour: int) -> None:
        left, right = max(0, x), min(self._width, x + width)
        for row in self._rows[max(0, y) : max(0, y + height)]:
            if right > left:
                row[left:right] = bytes((colour,)) * (right - left)

    def write(self, words: str, x: int, y: int, colour: int) -> int:
        """Write words in one line; returns where they end."""
        for sign in words.upper():
            for row, bits in enumerate(_SIGNS.get(sign, _UNKNOWN)):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        self.fill(x + column * _SCALE, y + row * _SCALE, _SCALE, _SCALE, colour)
            x += _WIDE
        return x

    def line(self, start: tuple[int, int], end: tuple[int, int], colour: int, thick: int) -> None:
        for x, y in _between(start, end):
            self.fill(x - thick // 2, y - thick // 2, thick, thick, colour)

    def path(self, points: Sequence[tuple[int, int]], colour: int) -> None:
        for start, end in pairwise(points if len(points) > 1 else (*points, *points)):
            self.line(start, end, colour, 3)

    def dashed(self, points: Sequence[tuple[int, int]], colour: int) -> None:
        dots = [dot for start, end in pairwise(points) for dot in _between(start, end)]
        for number, (x, y) in enumerate(dots or points):
            if number % (2 * _DASH) < _DASH:
                self.fill(x - 1, y - 1, 2, 2, colour)

    def encoded(self) -> bytes:
        """Return the image as PNG."""
        head = struct.pack(">IIBBBBB", self._width, self._height, 8, 3, 0, 0, 0)
        palette = b"".join(map(bytes, _PALETTE))
        pixels = zlib.compress(b"".join(b"\0" + row for row in self._rows), 9)
        chunks = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", pixels), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
            for name, content in chunks
        )


def _between(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    (x, y), (to_x, to_y) = start, end
    count = max(abs(to_x - x), abs(to_y - y), 1)
    for number in range(count + 1):
        part = number / count
        yield math.floor(x + (to_x - x) * part + 0.5), math.floor(y + (to_y - y) * part + 0.5)
