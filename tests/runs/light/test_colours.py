"""Colours can be read and distinguished: by WCAG's contrast, and by eyes that see fewer colours.

Contrast: WCAG 2.2, 1.4.3 (text, 4.5) and 1.4.11 (lines, 3). Distance: CIE 1976, where some 2 is just seen.
"""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from exporter.runs.light.pages import TEMPLATES
from exporter.runs.overview.charts import environment
from tests.grafana.test_colours import SIGHTS, contrast, difference

STYLE = environment(TEMPLATES).get_template("style.css.j2").render()
TEXT = ("ink", "quiet", "link", "critical", "warning", "info", "ok")
LINES = ("c0", "c1", "c2", "c3", "c4", "c5", "critical", "warning", "info")
BANDS = ("band-critical", "band-warning", "band-info")
SOLID, DOTTED = ("c0", "c1", "c2"), ("c3", "c4", "c5")


def colours(scheme: str) -> dict[str, str]:
    """The colours of a scheme by name; the dark one changes some of the light one's."""
    light = re.sub(r"@media[^{]*dark\) \{.*?\n\}", "", STYLE, flags=re.S)
    dark = "".join(re.findall(r"@media[^{]*dark\) \{(.*?)\n\}", STYLE, re.S))
    both = light + dark if scheme == "dark" else light
    found = dict(re.findall(r"--([\w-]+): (#\w+)", both))
    return {name: re.sub(r"^#(.)(.)(.)$", r"#\1\1\2\2\3\3", colour) for name, colour in found.items()}


def test_the_measures_are_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # known to fail by a hair
    assert difference("#000000", "#ffffff", "usual") == pytest.approx(100, abs=0.1)
    red, green = "#b02020", "#406020"
    assert difference(red, green, "deuteranopia") < difference(red, green, "usual") / 3


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


@pytest.mark.parametrize("eyes", SIGHTS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_of_one_kind_of_line_can_be_distinguished_by_all_eyes(scheme: str, eyes: str) -> None:
    found = colours(scheme)
    for kind in (SOLID, DOTTED):
        apart = {pair: difference(found[pair[0]], found[pair[1]], eyes) for pair in combinations(kind, 2)}
        assert min(apart.values()) >= 12, apart
    assert difference(found["critical"], found["warning"], eyes) >= 12


def test_a_page_on_paper_is_light() -> None:
    assert re.findall(r"@media ([^{]*dark\)) ", STYLE)
    assert all(rule.startswith("screen") for rule in re.findall(r"@media ([^{]*dark\)) ", STYLE))
