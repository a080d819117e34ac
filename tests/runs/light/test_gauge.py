"""The band of a health: which part of it is good, and where the value is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.light.pages import WIDTH, gauge
from exporter.runs.overview.models import Health, Range
from tests.runs.light.stories import HEALTHS


def health(value: float | None, warning: Range, critical: Range) -> Health:
    return replace(HEALTHS[0], judged=value, warning=warning, critical=critical)


def test_zones_follow_the_limits_and_the_mark_stands_in_the_zone_of_the_value() -> None:
    found = gauge(health(0.0, Range(-1.0, 1.0), Range(-2.0, 2.0)))
    assert [zone.state for zone in found.zones] == ["critical", "warning", "ok", "warning", "critical"]
    assert found.mark == WIDTH / 2
    low = gauge(health(0.15, Range(0.3), Range(0.1)))
    assert [zone.state for zone in low.zones if zone.start < low.mark < zone.end] == ["warning"]


def test_what_is_never_negative_gets_no_negative_end() -> None:
    found = gauge(health(0.02, Range(None, 0.5), Range(None, 1.0)))
    assert (found.zones[0].start, found.zones[0].state) == (0, "ok")
    assert found.mark == pytest.approx(WIDTH * 0.02 / 1.245, abs=1)


@given(*[st.none() | st.floats(-1e300, 1e300)] * 4, st.floats(-1e300, 1e300))
def test_zones_fill_the_band_and_hold_the_mark(
    a: float | None, b: float | None, c: float | None, d: float | None, value: float
) -> None:
    found = gauge(health(value, Range(a, b), Range(c, d)))
    if found is None:
        assert (a, b, c, d) == (None,) * 4
        return
    assert (found.zones[0].start, found.zones[-1].end) == (0, WIDTH)
    assert all(one.end == other.start for one, other in zip(found.zones, found.zones[1:], strict=False))
    assert 0 <= found.mark <= WIDTH
