"""Curves as pictures."""

from __future__ import annotations

import re

from exporter.runs.overview.charts import Chart, Curve, draw


def drawn(*pieces: tuple[tuple[int, float], ...]) -> list[tuple[str, str]]:
    """The class and the path of each line of a curve with these pieces."""
    last = max(step for piece in pieces for step, _ in piece)
    picture = draw(Chart("Reward", "", "short", None, None, 1, last, (Curve("reward", pieces),), (), ()))
    return re.findall(r'<path class="(curve.*?)" d="(.*?)"/>', picture)


def test_a_piece_of_one_point_is_a_dot_that_can_be_seen() -> None:
    (dot,) = drawn(((1, 0.5),))
    assert dot[0] == "curve c0 dot"

    line, dots = drawn(((1, 0.5), (2, 0.75)), ((4, 0.5),), ((6, 0.25),))
    assert (line[0], line[1].count("M"), dots[0], dots[1].count("M")) == ("curve c0", 1, "curve c0 dot", 2)
