"""What is worked out between a dashboard's template and Grafana's JSON."""

from __future__ import annotations

from typing import Any

import pytest

from stepwatch.render.dashboard import assemble
from stepwatch.schema.errors import Refused

Json = dict[str, Any]

CURVE = {
    "type": "timeseries",
    "field": {"custom": {"lineWidth": 2}},
    "options": {"tooltip": {"mode": "multi"}},
}


def panel(**parts: Any) -> Json:
    default = {
        "title": "KL",
        "description": "How far.",
        "unit": "short",
        "look": CURVE,
        "queries": [{"expr": "a"}],
    }
    return {**default, **parts}


def dashboard(*rows: list[Json], **parts: Any) -> Json:
    listed = [{"height": 6, "panels": panels} for panels in rows]
    return assemble({"uid": "x", "title": "X", "rows": listed, **parts})


def test_a_row_wider_than_the_grid_is_refused_with_its_first_panel_and_a_fix() -> None:
    with pytest.raises(Refused) as refusal:
        dashboard([panel(width=20), panel(width=6)])

    assert str(refusal.value) == (
        "x: the row of KL takes 26 columns. Expected: at most 24. Fix: give its panels less `width`."
    )


def test_a_panel_without_a_description_is_refused_by_name() -> None:
    bare = panel()
    del bare["description"]

    with pytest.raises(Refused) as refusal:
        dashboard([bare])

    assert str(refusal.value) == (
        "x: a panel (KL) has no `description`. Expected: title, description, unit, look, queries. "
        "Fix: add it to the template."
    )


def test_a_dashboard_without_rows_is_refused() -> None:
    with pytest.raises(Refused, match=r"a dashboard \(X\) has no `rows`"):
        assemble({"uid": "x", "title": "X"})
