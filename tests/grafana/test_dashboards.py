"""The rendered dashboards: what Grafana's classic form asks, and that their queries can be answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.gpu.table import FAMILIES
from exporter.runs.signals import SIGNALS
from exporter.runs.stats.catalogue import RUN_FAMILIES, STATISTICS
from stepwatch.rules.subjects import SHOWN_STATES
from tests.grafana.conftest import Dashboards, Json
from tests.grafana.queries import dashboard_queries, panels_of, selectors
from tests.rules.served import COUNTER, FOREIGN, METRICS

UIDS = tuple(
    f"stepwatch-{name}"
    for name in (
        "compare",
        "diagnose",
        "gpu",
        "nodes",
        "rollout",
        "runs",
        "stack",
        "training",
        "tutorial",
    )
)
# A screen of 1080 lines shows 24 rows of the grid below Grafana's menu, and the links and variables.
FULL_HD_ROWS = 24

RUN_METRICS = {family.name for family in RUN_FAMILIES} | {f"rl_{signal.name}" for signal in SIGNALS}
STATISTIC_SERIES = {(each.metric, tuple(sorted(each.labels.items()))) for each in STATISTICS}
FOREIGN_TYPES = {name: metric.type for metrics in FOREIGN.values() for name, metric in metrics.items()}
OTHER_METRICS = {
    *(
        "rl_limit",
        "rl_alert_onset_step",
        "rl_alert_onset_timestamp_seconds",
        "rl_run_gpu",
        "rl_run_power_watts",
        "rl_run_shown_state",
        "rl_reward_component",
        "rl_validation_component",
        "rl_raw",
    ),
    *(name for name in METRICS if not name.startswith("rl_")),
    *FAMILIES,
}


@pytest.fixture(params=UIDS)
def dashboard(default: dict[str, Json], request: pytest.FixtureRequest) -> Json:
    return default[request.param]


def test_it_is_in_the_classic_form_that_grafana_10_to_13_loads(dashboard: Json) -> None:
    assert dashboard["schemaVersion"] == 38
    assert dashboard["editable"] is False
    assert not {"__inputs", "elements", "layout", "spec", "id"} & set(dashboard)
    assert {"from", "to"} == set(dashboard["time"])
    assert "fieldMinMax" not in str(dashboard), "unknown to Grafana 10.0: the range is that of all columns"
    assert "timeSeriesTable" not in str(dashboard), "unknown to Grafana 10.0, which shows no table"
    for panel in panels_of(dashboard):
        assert {"id", "type", "title", "gridPos", "targets", "fieldConfig", "options"} <= set(panel)
        assert {"defaults", "overrides"} == set(panel["fieldConfig"])
        assert panel["type"] in {"timeseries", "stat", "table", "state-timeline", "trend", "heatmap"}


def test_a_run_of_minutes_is_not_a_sliver(default: dict[str, Json]) -> None:
    for uid in ("stepwatch-training", "stepwatch-gpu", "stepwatch-diagnose"):
        assert default[uid]["time"] == {"from": "now-1h", "to": "now"}
    (rewards,) = (each for each in panels_of(default["stepwatch-runs"]) if each["title"] == "Rewards")
    assert rewards["timeFrom"] == "1h"


def test_a_run_that_says_that_it_runs_but_hangs_is_red(default: dict[str, Json]) -> None:
    """What people see of it is ``stalled``: see tests/rules/test_states.py."""
    (states,) = (each for each in panels_of(default["stepwatch-runs"]) if each["title"] == "States")
    (mapping,) = states["fieldConfig"]["defaults"]["mappings"]
    stalled = mapping["options"][str(SHOWN_STATES.index("stalled") + 1)]

    assert (stalled["text"], stalled["color"]) == ("stalled", "red")


def test_what_fires_is_seen_together_with_the_runs(default: dict[str, Json]) -> None:
    places = {panel["title"]: panel["gridPos"] for panel in panels_of(default["stepwatch-runs"])}
    table, firing = places["All runs"], places["Firing"]

    assert firing["y"] == table["y"] + table["h"]
    assert firing["y"] + firing["h"] <= FULL_HD_ROWS


@pytest.mark.parametrize("name", ["gpu", "runs", "training"])
def test_six_alerts_that_fire_are_seen_at_once(default: dict[str, Json], name: str) -> None:
    """A row of a table takes 36 pixels, as does the one of headings; title and margins take 46."""
    (firing,) = (each for each in panels_of(default[f"stepwatch-{name}"]) if each["title"] == "Firing")

    assert 38 * firing["gridPos"]["h"] - 46 >= (1 + 6) * 36


def test_tables_that_are_empty_on_most_machines_are_in_collapsed_rows(default: dict[str, Json]) -> None:
    gpu = default["stepwatch-gpu"]["panels"]
    rows = [each for each in gpu if each["type"] == "row"]

    assert all(row["collapsed"] for row in rows)
    assert [each["title"] for row in rows for each in row["panels"]] == [
        *("Energy by run", "Processes", "Instances")
    ]
    assert gpu[-len(rows) :] == rows, "what follows an open row would be part of it"


def test_silences_and_rules_are_grafanas_own_pages(dashboard: Json) -> None:
    assert {
        link["title"]: link["url"]
        for link in dashboard["links"]
        if link.get("url", "").startswith("/alerting")
    } == {
        "Silences": "/alerting/silences?alertmanager=Stepwatch%20Alertmanager",
        "Rules": "/alerting/list",
    }


def test_each_dashboard_is_one_click_away_once(default: dict[str, Json]) -> None:
    for dashboard in default.values():
        row, compare, *_ = dashboard["links"]
        tagged = {each["title"] for each in default.values() if set(row["tags"]) <= set(each["tags"])}

        assert tagged | {compare["title"]} == {each["title"] for each in default.values()}
        assert compare["title"] not in tagged
        for link in (row, compare):
            assert (link["keepTime"], link["includeVars"], link["targetBlank"]) == (True, True, False)


@pytest.mark.parametrize("name", ["training", "diagnose", "tutorial"])
def test_the_run_on_show_is_compared(default: dict[str, Json], dashboards: Dashboards, name: str) -> None:
    def arrives(all_: dict[str, Json]) -> dict[str, str]:
        link = next(each for each in all_[f"stepwatch-{name}"]["links"] if each["title"] == "Compare")
        path, _, query = link["url"].partition("?")
        uid = path.removeprefix("/d/")
        there = {f"var-{each['name']}" for each in all_[uid]["templating"]["list"]}
        passed = dict(part.split("=") for part in query.split("&"))
        assert set(passed) <= there
        return passed

    assert arrives(default) == {"var-runs": "${run:percentencode}"}
    assert arrives(dashboards("role: hub")) == {
        "var-runs": "${run:percentencode}",
        "var-clusters": "${cluster:percentencode}",
    }


def test_why_a_run_goes_wrong_is_on_one_screen(default: dict[str, Json]) -> None:
    """Rows from the run itself to its machines; what fires, and the first two rows, need no scrolling."""
    panels = [each for each in panels_of(default["stepwatch-training"]) if each["type"] != "row"]
    places = {panel["title"]: panel["gridPos"] for panel in panels}
    rows: dict[int, list[str]] = {}
    for title, place in places.items():
        rows.setdefault(place["y"], []).append(title)
    curves = [titles for y, titles in sorted(rows.items()) if y >= places["Reward"]["y"]]

    assert curves[:4] == [
        ["Reward", "KL", "Entropy"],
        ["Actor loss", "Critic loss", "Gradient norm"],
        ["GPU utilisation", "Rollout latency", "Rollout time"],
        ["Throughput", "Memory"],
    ]
    for title in ("Firing", *curves[0], *curves[1]):
        assert places[title]["y"] + places[title]["h"] <= FULL_HD_ROWS, title


def test_curves_are_tall_enough_to_be_read(dashboard: Json) -> None:
    for panel in panels_of(dashboard):
        if panel["type"] == "timeseries":
            assert panel["gridPos"]["h"] >= 8, panel["title"]


def test_every_panel_has_a_title_a_description_in_sentences_and_a_unit(dashboard: Json) -> None:
    titles = [panel["title"] for panel in panels_of(dashboard)]
    assert len(set(titles)) == len(titles)
    for panel in panels_of(dashboard):
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
    asked = [each for each in dashboard["templating"]["list"] if each["type"] == "query"]
    parts = [*panels_of(dashboard), *asked, *dashboard["annotations"]["list"]]
    parts += [target for panel in panels_of(dashboard) for target in panel["targets"]]

    assert all("datasource" in part for part in parts)
    assert all(
        source == {"type": "prometheus", "uid": "stepwatch-prometheus"} for source in datasources(dashboard)
    )


def test_the_run_on_show_is_the_sickest_then_one_that_runs_then_the_newest(default: dict[str, Json]) -> None:
    (variable,) = default["stepwatch-training"]["templating"]["list"]

    assert variable["name"] == "run"
    assert variable["query"]["query"].startswith("query_result(sort_desc(max by (run) (")
    assert (variable["multi"], variable["includeAll"], variable["sort"]) == (False, False, 0)
    found = re.search(variable["regex"].strip("/"), '{run="ppo/a, \'b" c"} 4001795437854 1795437854000')
    assert found
    assert found[1] == "ppo/a, 'b\" c"


@pytest.mark.parametrize(
    ("uid", "selected"),
    [
        ("stepwatch-training", "{run=${run:doublequote}}"),
        ("stepwatch-runs", '{run!="",run=~`(${folder:regex}).*`}'),
    ],
)
def test_marks_are_drawn_at_their_own_time_in_milliseconds(
    default: dict[str, Json], uid: str, selected: str
) -> None:
    drawn = default[uid]["annotations"]["list"]
    (mark,) = [each for each in drawn if each["name"] == "Marks"]

    assert mark["expr"] == f"1000 * max by (run, note) (rl_run_mark_timestamp_seconds{selected})"
    assert (mark["titleFormat"], mark["textFormat"]) == ("{{note}}", "{{run}}: levels begin anew")
    assert mark["useValueForTime"]


def test_every_metric_asked_for_is_one_that_someone_serves(dashboard: Json) -> None:
    for query in dashboard_queries(dashboard, "a"):
        for name, matchers in selectors(query.expr):
            if name not in RUN_METRICS | OTHER_METRICS and not name.endswith("nonfinite_streak_steps"):
                labels = {key: value for key, value in matchers.items() if key != "run"}
                assert (name, tuple(sorted(labels.items()))) in STATISTIC_SERIES, query


@pytest.mark.parametrize(("name", "least"), [("rollout", 6), ("nodes", 6), ("gpu", 1)])
def test_rates_are_taken_over_four_scrapes_of_targets_that_are_scraped_less_often_than_runs(
    dashboards: Dashboards, name: str, least: int
) -> None:
    rates = [
        target
        for panel in panels_of(dashboards("intervals: {scrape: 20s}")[f"stepwatch-{name}"])
        for target in panel["targets"]
        if "$__rate_interval" in target["expr"]
    ]

    assert len(rates) >= least
    assert {target.get("interval") for target in rates} == {"20s"}


def test_gauges_are_not_read_as_counters(dashboard: Json) -> None:
    for query in dashboard_queries(dashboard, "a"):
        for read in re.findall(r"\b(?:rate|increase|irate)\(([\w:]+)", query.expr):
            assert read.endswith("_total") or FOREIGN_TYPES.get(read) == COUNTER, query
