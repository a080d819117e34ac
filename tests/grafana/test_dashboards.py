"""The rendered dashboards: what Grafana's classic form asks, and that their queries can be answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from exporter.gpu.families import FRONT_FAMILIES, GPU_FAMILIES
from exporter.runs.signals import SIGNALS
from exporter.runs.stats.catalogue import RUN_FAMILIES, STATISTICS
from stepwatch.alerts.gpu_health import XIDS
from tests.grafana.conftest import Json
from tests.grafana.queries import dashboard_queries, fill_in, selectors

UIDS = ("stepwatch-gpu", "stepwatch-runs", "stepwatch-training")
GRID_COLUMNS = 24
# A screen of 1080 lines shows 27 to 28 rows of the grid.
SCREEN_ROWS = 28

RUN_METRICS = {family.name for family in RUN_FAMILIES} | {f"rl_{signal.name}" for signal in SIGNALS}
STATISTIC_SERIES = {(each.metric, tuple(sorted(each.labels.items()))) for each in STATISTICS}
OTHER_METRICS = {
    *("ALERTS", "ALERTS_FOR_STATE", "up"),
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"),
    *(family.name for family in (*GPU_FAMILIES, *FRONT_FAMILIES)),
}


@pytest.fixture(params=UIDS)
def dashboard(default: dict[str, Json], request: pytest.FixtureRequest) -> Json:
    return default[request.param]


def test_there_are_three_dashboards_with_the_uids_that_links_hold(default: dict[str, Json]) -> None:
    assert {uid: each["title"] for uid, each in default.items()} == {
        "stepwatch-gpu": "GPU",
        "stepwatch-runs": "Runs",
        "stepwatch-training": "Training",
    }


def test_it_is_in_the_classic_form_that_grafana_10_to_13_loads(dashboard: Json) -> None:
    assert dashboard["schemaVersion"] == 38
    assert dashboard["editable"] is False
    assert not {"__inputs", "elements", "layout", "spec", "id"} & set(dashboard)
    assert {"from", "to"} == set(dashboard["time"])
    for panel in dashboard["panels"]:
        assert {"id", "type", "title", "gridPos", "targets", "fieldConfig", "options"} <= set(panel)
        assert {"defaults", "overrides"} == set(panel["fieldConfig"])
        assert panel["type"] in {"timeseries", "stat", "table", "state-timeline"}


def test_panels_have_ids_of_their_own_and_queries_letters_of_their_own(dashboard: Json) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        letters = [target["refId"] for target in panel["targets"]]
        assert letters
        assert len(set(letters)) == len(letters)


def test_panels_lie_on_the_grid_without_overlap(dashboard: Json) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID_COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]


@pytest.mark.parametrize("uid", ["stepwatch-gpu", "stepwatch-training"])
def test_a_run_and_a_box_fit_one_screen_each(uid: str, default: dict[str, Json]) -> None:
    places = [panel["gridPos"] for panel in default[uid]["panels"]]

    assert max(place["y"] + place["h"] for place in places) <= SCREEN_ROWS


def test_every_panel_has_a_title_a_description_in_sentences_and_a_unit(dashboard: Json) -> None:
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(set(titles)) == len(titles)
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]


def datasources(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        if "datasource" in part:
            yield part["datasource"]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from datasources(each)


def test_every_panel_query_variable_and_annotation_names_the_fixed_datasource(dashboard: Json) -> None:
    parts = [*dashboard["panels"], *dashboard["templating"]["list"], *dashboard["annotations"]["list"]]
    parts += [target for panel in dashboard["panels"] for target in panel["targets"]]

    assert all("datasource" in part for part in parts)
    assert all(
        source == {"type": "prometheus", "uid": "stepwatch-prometheus"} for source in datasources(dashboard)
    )


def test_the_run_on_show_is_one_of_those_that_prometheus_knows(default: dict[str, Json]) -> None:
    (variable,) = default["stepwatch-training"]["templating"]["list"]

    assert variable["name"] == "run"
    assert variable["query"]["query"] == "label_values(rl_step, run)"
    assert (variable["multi"], variable["includeAll"]) == (False, False)


def test_the_box_on_show_is_one_of_those_whose_gpus_prometheus_knows(default: dict[str, Json]) -> None:
    (variable,) = default["stepwatch-gpu"]["templating"]["list"]

    assert variable["name"] == "instance"
    assert variable["query"]["query"] == "label_values(gpu_up, instance)"
    assert (variable["multi"], variable["includeAll"]) == (False, False)


def test_alerts_about_the_gpus_of_the_box_are_drawn_into_its_panels(default: dict[str, Json]) -> None:
    drawn = default["stepwatch-gpu"]["annotations"]["list"]

    of_gpus = 'topic="gpu",instance=${instance:doublequote}'
    assert [(each["iconColor"], each["expr"]) for each in drawn] == [
        (colour, f'ALERTS{{alertstate="firing",severity="{severity}",{of_gpus}}}')
        for colour, severity in (("red", "critical"), ("orange", "warning"))
    ]


def test_xid_errors_are_put_into_words(default: dict[str, Json]) -> None:
    table = next(panel for panel in default["stepwatch-gpu"]["panels"] if panel["title"] == "Xid errors")
    (override,) = [each for each in table["fieldConfig"]["overrides"] if each["matcher"]["options"] == "xid"]
    ((words,),) = [entry["value"] for entry in override["properties"] if entry["id"] == "mappings"]

    assert {int(code): entry["text"] for code, entry in words["options"].items()} == {
        code: f"{code}: {meaning.meaning}" for code, meaning in XIDS.items()
    }


def test_a_table_about_gpus_joins_its_queries_by_all_labels_they_share(default: dict[str, Json]) -> None:
    table = next(panel for panel in default["stepwatch-gpu"]["panels"] if panel["title"] == "Xid errors")
    join, keep, arrange = table["transformations"]

    assert join == {"id": "merge", "options": {}}
    assert keep["options"]["include"]["names"] == ["gpu", "xid", "Value #A", "Value #B"]
    assert arrange["options"]["renameByName"] == {"Value #A": "times", "Value #B": "last"}


def test_alerts_of_the_run_are_drawn_into_its_panels_by_severity(default: dict[str, Json]) -> None:
    drawn = default["stepwatch-training"]["annotations"]["list"]

    assert [
        (each["iconColor"], each["expr"], each["enable"]) for each in drawn if each["name"] != "Marks"
    ] == [
        ("red", 'ALERTS{alertstate="firing",severity="critical",run=${run:doublequote}}', True),
        ("orange", 'ALERTS{alertstate="firing",severity="warning",run=${run:doublequote}}', True),
    ]
    assert all(each["target"]["expr"] == each["expr"] for each in drawn), "the form of Grafana 11 and later"


@pytest.mark.parametrize(
    ("uid", "selected"), [("stepwatch-training", "{run=${run:doublequote}}"), ("stepwatch-runs", "")]
)
def test_marks_are_drawn_at_their_own_time_in_milliseconds(
    default: dict[str, Json], uid: str, selected: str
) -> None:
    drawn = default[uid]["annotations"]["list"]
    (mark,) = [each for each in drawn if each["name"] == "Marks"]

    assert mark["expr"] == f"1000 * max by (run, note) (rl_run_mark_timestamp_seconds{selected})"
    assert (mark["titleFormat"], mark["textFormat"]) == ("{{note}}", "{{run}}: levels begin anew")
    assert [each["name"] for each in drawn if each["useValueForTime"]] == ["Marks"]


def test_every_query_is_promql_once_the_run_is_filled_in(dashboard: Json) -> None:
    for query in dashboard_queries(dashboard, 'a/"b" c'):
        assert "$" not in query.expr, query
        promql_parser.parse(query.expr)


def test_every_metric_asked_for_is_one_that_someone_serves(dashboard: Json) -> None:
    for query in dashboard_queries(dashboard, "a"):
        for name, matchers in selectors(query.expr):
            if name not in RUN_METRICS | OTHER_METRICS and not name.endswith("nonfinite_streak_steps"):
                labels = {key: value for key, value in matchers.items() if key != "run"}
                assert (name, tuple(sorted(labels.items()))) in STATISTIC_SERIES, query


def aggregated(node: Any, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Every metric of an expression, and whether it is inside an aggregation."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name, inside
    inside = inside or isinstance(node, promql_parser.AggregateExpr)
    for name in ("expr", "lhs", "rhs"):
        if isinstance(child := getattr(node, name, None), promql_parser.Expr):
            yield from aggregated(child, inside)
    for child in getattr(node, "args", []):
        yield from aggregated(child, inside)


def test_two_exporters_on_one_run_draw_one_curve(dashboard: Json) -> None:
    """Whatever an exporter serves is aggregated before anything else is done with it."""
    for query in dashboard_queries(dashboard, "a"):
        for name, inside in aggregated(promql_parser.parse(query.expr)):
            assert inside or name == "ALERTS", query


def test_gauges_are_not_read_as_counters(dashboard: Json) -> None:
    for query in dashboard_queries(dashboard, "a"):
        for read in re.findall(r"\b(?:rate|increase|irate)\((\w+)", query.expr):
            assert read.endswith("_total"), query


def test_a_row_of_runs_opens_the_run_whatever_it_is_called(default: dict[str, Json]) -> None:
    table = next(panel for panel in default["stepwatch-runs"]["panels"] if panel["title"] == "All runs")
    properties = {
        each["matcher"]["options"]: {entry["id"]: entry["value"] for entry in each["properties"]}
        for each in table["fieldConfig"]["overrides"]
    }

    assert properties["run"]["links"][0]["url"] == (
        "/d/stepwatch-training?var-run=${__data.fields.run:percentencode}&${__url_time_range}"
    )


def test_the_table_of_runs_joins_its_queries_by_run_and_names_each_column(default: dict[str, Json]) -> None:
    table = next(panel for panel in default["stepwatch-runs"]["panels"] if panel["title"] == "All runs")
    join, keep, arrange = table["transformations"]
    letters = {target["refId"]: target["expr"] for target in table["targets"]}

    assert join == {"id": "joinByField", "options": {"byField": "run", "mode": "outer"}}
    names = {**arrange["options"]["renameByName"], "run": "run", "framework": "framework"}
    assert [names[field] for field in keep["options"]["include"]["names"]] == [
        *("run", "state", "framework", "step", "of", "last step", "reward", "KL", "alerts")
    ]
    reward = next(field for field, name in names.items() if name == "reward")
    assert letters[reward.removeprefix("Value #")] == "max by (cluster, run) (rl_reward)"
    assert all(target["instant"] and target["format"] == "table" for target in table["targets"])


def test_a_run_is_filled_in_as_grafana_does_it() -> None:
    assert fill_in("x{a=${instance:doublequote}}", "[::1]:9411", "instance") == 'x{a="[::1]:9411"}'
    assert fill_in("x{run=${run:doublequote}}", 'ppo/强 "q" it\'s') == 'x{run="ppo/强 \\"q\\" it\'s"}'
