"""What is worked out between a dashboard's template and Grafana's JSON."""

from __future__ import annotations

import re
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
TABLE = {"type": "table", "field": {}, "options": {}}


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


def only(**parts: Any) -> Json:
    made: Json = dashboard([panel(**parts)])["panels"][0]
    return made


def test_rows_stack_and_panels_without_a_width_share_what_the_others_leave() -> None:
    made = dashboard([panel(width=6), panel(), panel()], [panel()])["panels"]

    assert [each["gridPos"] for each in made] == [
        {"x": 0, "y": 0, "w": 6, "h": 6},
        {"x": 6, "y": 0, "w": 9, "h": 6},
        {"x": 15, "y": 0, "w": 9, "h": 6},
        {"x": 0, "y": 6, "w": 24, "h": 6},
    ]
    assert [each["id"] for each in made] == [1, 2, 3, 4]


def test_columns_that_cannot_be_shared_alike_go_to_the_first_panels() -> None:
    made = dashboard([panel() for _ in range(5)])["panels"]

    assert [each["gridPos"]["w"] for each in made] == [5, 5, 5, 5, 4]


def test_more_curves_than_colours_differ_by_their_dashes() -> None:
    names = [f"signal {number}" for number in range(30)]
    by_query = only(queries=[{"expr": name, "legend": name} for name in names[:20]])
    by_name = only(queries=[{"expr": "a", "legend": "{{signal}}", "names": names}])

    for made, count in ((by_query, 20), (by_name, 30)):
        looks = [str(each["properties"]) for each in made["fieldConfig"]["overrides"]]
        assert len(set(looks)) == len(looks) == count


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


def test_queries_are_lettered_and_one_that_asks_nothing_is_left_out() -> None:
    targets = only(queries=[{"expr": "a"}, {"expr": " "}, {"expr": " b\n", "legend": "B"}])["targets"]

    assert [(each["refId"], each["expr"], each["legendFormat"]) for each in targets] == [
        ("A", "a", "__auto"),
        ("B", "b", "B"),
    ]


@pytest.mark.parametrize(
    ("kind", "instant", "form"),
    [
        ("timeseries", False, "time_series"),
        ("stat", True, "time_series"),
        ("table", True, "table"),
        ("heatmap", False, "heatmap"),
    ],
)
def test_figures_and_tables_ask_for_now_and_curves_for_the_time_range(
    kind: str, instant: bool, form: str
) -> None:
    (target,) = only(look={**CURVE, "type": kind})["targets"]

    assert (target["instant"], target["range"], target["format"]) == (instant, not instant, form)


@pytest.mark.parametrize(
    ("legend", "names"),
    [("GPU {{gpu}}", ("GPU 3", "GPU 13")), ("{{machine}}", ("node3", "10.0.0.13", "gpu-3.cluster"))],
)
def test_curves_of_a_query_are_coloured_by_the_last_digit_of_their_number(
    legend: str, names: tuple[str, ...]
) -> None:
    first, *numbered = only(queries=[{"expr": "a", "legend": legend}])["fieldConfig"]["overrides"]
    numbered = [each for each in numbered if each["properties"][0]["id"] == "color"]
    matching = [
        [each["properties"] for each in numbered if re.search(each["matcher"]["options"].strip("/"), name)]
        for name in names
    ]

    assert first["matcher"] == {"id": "byFrameRefID", "options": "A"}
    assert all(found == [numbered[3]["properties"]] for found in matching)


@pytest.mark.parametrize(
    ("legends", "shown"),
    [
        (("GPU {{gpu}}",), ["GPU 0", "GPU 7"]),
        (("GPU {{gpu}}", "limit"), []),
        (("{{machine}}",), []),
    ],
)
def test_of_numbered_curves_a_legend_has_the_first_eight_gpus_unless_it_has_something_else(
    legends: tuple[str, ...], shown: list[str]
) -> None:
    made = only(queries=[{"expr": legend, "legend": legend} for legend in legends])["fieldConfig"][
        "overrides"
    ]
    hiding = [each["matcher"] for each in made if "custom.hideFrom" in str(each["properties"])]
    names = ["GPU 0", "GPU 7", "GPU 8", "GPU 15", "GPU 100"]

    assert shown == [
        name
        for name in names
        if not any(
            each["options"] == "A"
            if each["id"] == "byFrameRefID"
            else re.search(each["options"].strip("/"), name)
            for each in hiding
        )
    ]


def test_limits_that_are_numbers_become_threshold_steps_in_ascending_order() -> None:
    limits = [{"severity": "critical", "value": 3}, {"severity": "warning", "value": 1}]

    assert only(limits=limits)["fieldConfig"]["defaults"]["thresholds"] == {
        "mode": "absolute",
        "steps": [
            {"color": "green", "value": None},
            {"color": "orange", "value": 1},
            {"color": "red", "value": 3},
        ],
    }


def test_limits_that_are_queries_come_after_the_panels_own_and_are_styled_by_their_letter() -> None:
    made = only(limits=[{"severity": "critical", "legend": "KLExplosion", "expr": "start + 1"}])
    _, override = made["fieldConfig"]["overrides"]

    assert [(each["refId"], each["legendFormat"]) for each in made["targets"]] == [
        ("A", "__auto"),
        ("B", "KLExplosion"),
    ]
    assert override["matcher"] == {"id": "byFrameRefID", "options": "B"}
    assert {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}} in override["properties"]


def test_a_panels_own_field_settings_stand_over_those_of_its_look() -> None:
    made = only(field={"min": 0, "unit": "bytes"})["fieldConfig"]["defaults"]

    assert (made["min"], made["unit"], made["custom"]) == (0, "bytes", {"lineWidth": 2})


def test_a_table_of_one_query_needs_no_join() -> None:
    made = only(look=TABLE, queries=[{"expr": "a", "column": "since"}], columns={"severity": {}, "since": {}})

    assert made["transformations"] == [
        {"id": "filterFieldsByName", "options": {"include": {"names": ["severity", "Value"]}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {"severity": 0, "Value": 1},
                "renameByName": {"Value": "since"},
            },
        },
    ]


@pytest.mark.parametrize(
    ("parts", "join"),
    [
        ({"join": "gpu"}, {"id": "joinByField", "options": {"byField": "gpu", "mode": "outer"}}),
        ({}, {"id": "merge", "options": {}}),
    ],
)
def test_a_table_of_several_queries_joins_them_by_the_label_it_names_or_by_all_they_share(
    parts: Json, join: Json
) -> None:
    queries = [{"expr": name, "column": name} for name in "ab"]
    made = only(look=TABLE, queries=queries, columns={"gpu": {}, "a": {}, "b": {}}, **parts)

    assert made["transformations"][0] == join


def test_an_empty_cell_of_a_table_does_not_say_what_a_table_without_rows_says() -> None:
    made = only(
        look=TABLE, queries=[{"expr": "a", "column": "a"}], columns={"a": {}}, field={"noValue": "None."}
    )

    (style,) = made["fieldConfig"]["overrides"]
    assert made["fieldConfig"]["defaults"]["noValue"] == "None."
    assert style["properties"] == [{"id": "noValue", "value": ""}]


def test_a_collapsed_row_holds_its_panels_and_takes_one_line() -> None:
    rows = [
        {"height": 8, "title": "Critic", "collapsed": True, "panels": [panel()]},
        {"height": 5, "title": "Rest", "panels": [panel()]},
    ]
    critic, rest, below = assemble({"uid": "x", "title": "X", "rows": rows})["panels"]

    assert (critic["type"], critic["collapsed"], [each["type"] for each in critic["panels"]]) == (
        "row",
        True,
        ["timeseries"],
    )
    assert (rest["type"], rest["collapsed"], rest["panels"]) == ("row", False, [])
    assert [each["gridPos"]["y"] for each in (critic, critic["panels"][0], rest, below)] == [0, 1, 1, 2]


def test_panels_can_share_a_place_one_below_the_other() -> None:
    above, below, beside = assemble(
        {
            "uid": "x",
            "title": "X",
            "rows": [{"height": 6, "panels": [{"width": 4, "stacked": [panel(), panel()]}, panel()]}],
        }
    )["panels"]

    assert [each["gridPos"] for each in (above, below, beside)] == [
        {"x": 0, "y": 0, "w": 4, "h": 3},
        {"x": 0, "y": 3, "w": 4, "h": 3},
        {"x": 4, "y": 0, "w": 20, "h": 6},
    ]
