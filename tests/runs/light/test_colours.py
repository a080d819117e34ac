"""Colours can be read and distinguished: by WCAG's contrast, and by eyes that see fewer colours.

Contrast: WCAG 2.2, 1.4.3 (text, 4.5) and 1.4.11 (lines, 3). Fewer colours: the matrices for full
protanopia, deuteranopia and tritanopia of Machado, Oliveira and Fernandes, 2009, in linear RGB.
Distance: CIE 1976, where some 2 is just seen beside each other.
"""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from exporter.runs.light.pages import TEMPLATES
from exporter.runs.overview.charts import environment

STYLE = environment(TEMPLATES).get_template("style.css.j2").render()
EYES = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TEXT = ("ink", "quiet", "link", "critical", "warning", "info", "ok")
LINES = ("c0", "c1", "c2", "c3", "c4", "c5", "critical", "warning", "info")
BANDS = ("band-critical", "band-warning", "band-info")
SOLID, DOTTED = ("c0", "c1", "c2"), ("c3", "c4", "c5")

RGB = tuple[float, float, float]


def colours(scheme: str) -> dict[str, str]:
    """The colours of a scheme by name; the dark one changes some of the light one's."""
    light = re.sub(r"@media[^{]*dark\) \{.*?\n\}", "", STYLE, flags=re.S)
    dark = "".join(re.findall(r"@media[^{]*dark\) \{(.*?)\n\}", STYLE, re.S))
    found = dict(re.findall(r"--([\w-]+): (#\w+)", light))
    return found | dict(re.findall(r"--([\w-]+): (#\w+)", dark)) if scheme == "dark" else found


def linear(colour: str) -> RGB:
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return red, green, blue


def contrast(one: str, other: str) -> float:
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, (one, other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, eyes: str) -> RGB:
    seen = linear(colour)
    r, g, b = (
        min(1.0, max(0.0, sum(part * by for part, by in zip(seen, row, strict=True)))) for row in EYES[eyes]
    )
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = map(felt, (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def felt(part: float) -> float:
    return part ** (1 / 3) if part > 216 / 24389 else (24389 / 27 * part + 16) / 116


def distance(one: str, other: str, eyes: str) -> float:
    return sum((a - b) ** 2 for a, b in zip(lab(one, eyes), lab(other, eyes), strict=True)) ** 0.5


def test_the_measures_are_right() -> None:
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)  # known to fail by a hair
    assert distance("#000", "#fff", "all") == pytest.approx(100, abs=0.1)
    red, green = "#b02020", "#406020"
    assert distance(red, green, "deuteranopia") < distance(red, green, "all") / 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str) -> None:
    found = colours(scheme)
    reported = {name: contrast(found[name], found["page"]) for name in TEXT}
    assert min(reported.values()) >= 4.5, reported


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_stand_out_on_the_page_and_on_every_band(scheme: str) -> None:
    found = colours(scheme)
    on_page = {name: contrast(found[name], found["page"]) for name in LINES}
    assert min(on_page.values()) >= 3, on_page
    on_bands = {(name, band): contrast(found[name], found[band]) for name in SOLID for band in BANDS}
    assert min(on_bands.values()) >= 3, on_bands


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_of_one_kind_of_line_can_be_distinguished_by_all_eyes(scheme: str, eyes: str) -> None:
    found = colours(scheme)
    for kind in (SOLID, DOTTED):
        apart = {pair: distance(found[pair[0]], found[pair[1]], eyes) for pair in combinations(kind, 2)}
        assert min(apart.values()) >= 12, apart
    assert distance(found["critical"], found["warning"], eyes) >= 12


def test_a_page_on_paper_is_light() -> None:
    assert re.findall(r"@media ([^{]*dark\)) ", STYLE)
    assert all(rule.startswith("screen") for rule in re.findall(r"@media ([^{]*dark\)) ", STYLE))
