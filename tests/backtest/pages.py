"""The page of a backtest, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class Page(HTMLParser):
    """The tags with their attributes, and the words between them, in their order."""

    text: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words += [data.strip()] if data.strip() else []

    def attributes(self, *names: str) -> list[str]:
        return [value for _, found in self.tags for name, value in found.items() if name in names]

    @property
    def titles(self) -> list[str]:
        return re.findall("<figcaption>(.*?)</figcaption>", self.text)

    def chart(self, title: str) -> Chart:
        found = re.search(
            f"<figcaption>{title}</figcaption>\\s*(<svg.*?</svg>)\\s*<ul.*?>(.*?)</ul>", self.text, re.S
        )
        assert found, f"{title} is none of {self.titles}"
        return Chart(ElementTree.fromstring(found[1]), re.findall("</i>(.*?)</li>", found[2]))


@dataclass(frozen=True)
class Chart:
    """A picture and the words below it. What its places mean is read off its axes."""

    svg: ElementTree.Element
    legend: list[str]

    def lines(self, kind: str) -> list[list[list[tuple[float, float]]]]:
        """The pieces of each line of a class, as steps and values."""
        paths = [path for path in self.svg.iter(f"{_SVG}path") if kind in path.attrib["class"]]
        return [[self._meant(piece) for piece in _pieces(path.attrib["d"])] for path in paths]

    def at(self, kind: str, step: float) -> float:
        """The value of the only line of a class at a step, between two of its points if need be."""
        (line,) = self.lines(kind)
        (piece,) = [piece for piece in line if piece[0][0] <= step <= piece[-1][0]]
        after = next(index for index, point in enumerate(piece) if point[0] >= step)
        return _along([piece[max(after - 1, 0)], piece[after]], step)

    def bands(self) -> list[tuple[str, float, float]]:
        """The class of each shaded span, and the steps from which to which it goes."""
        return [
            (
                band.attrib["class"].removeprefix("band "),
                self._step(float(band.attrib["x"])),
                self._step(float(band.attrib["x"]) + float(band.attrib["width"])),
            )
            for band in self.svg.iter(f"{_SVG}rect")
        ]

    def _meant(self, places: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(self._step(x), self._value(y)) for x, y in places]

    def _step(self, x: float) -> float:
        return _along(self._ticks("middle", "x", 0), x)

    def _value(self, y: float) -> float:
        return _along(self._ticks("end", "y", 8), y)

    def _ticks(self, anchor: str, axis: str, off: float) -> list[tuple[float, float]]:
        """Places and numbers of an axis; its texts stand so far off."""
        texts = [text for text in self.svg.iter(f"{_SVG}text") if text.attrib["text-anchor"] == anchor]
        return [(float(text.attrib[axis]) - off, float((text.text or "").split()[0])) for text in texts]


def _along(ticks: list[tuple[float, float]], place: float) -> float:
    (first, low), (last, high) = ticks[0], ticks[-1]
    return low + (place - first) / ((last - first) or 1) * (high - low)


def _pieces(path: str) -> list[list[tuple[float, float]]]:
    found = []
    for piece in path.split("M")[1:]:
        start, *moves = piece.removesuffix("h0").split("l")
        x, y = map(float, start.split())
        places = [(x, y)]
        for move in moves:
            right, down = map(float, move.split())
            x, y = x + right, y + down
            places.append((x, y))
        found.append(places)
    return found
