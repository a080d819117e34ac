"""Where the annotations of rules lead."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.render.generator import render_all
from stepwatch.system.environment import CHECKOUT

FOLDER = PurePosixPath("prometheus/generated/rules")
RULES = FOLDER / "rl.yml"
Links = dict[str, str]


def links(parts: frozenset[str], settings: Config | None = None, rules: PurePosixPath = RULES) -> Links:
    """The link of each alert in a file of rules."""

    def place(config: Config) -> Deployment:
        return OnThisMachine(config, parts)

    files = render_all(settings or Config(), CHECKOUT, place, services=["prometheus"])
    groups = yaml.safe_load(files[rules])["groups"]
    return {
        rule["alert"]: rule["annotations"]["dashboard_url"]
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    }


def dashboards(parts: frozenset[str], settings: Config | None = None) -> set[str]:
    return {*links(parts, settings).values()}


def test_alerts_on_runs_lead_to_grafana_or_where_there_is_none_to_the_exporters_page() -> None:
    shown = {url.split("?")[0] for url in dashboards(frozenset({"grafana"}))}
    page, overview = sorted(dashboards(frozenset()), key=len, reverse=True)

    assert shown == {f"http://127.0.0.1:3000/d/stepwatch-{name}" for name in ("training", "runs")}
    assert page.startswith("http://127.0.0.1:9410/run/{{$labels.run | urlquery")
    assert overview == "http://127.0.0.1:9410/"


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"role": "hub", "external_labels": {"cluster": "here"}}, "$labels.cluster"),
        ({"external_labels": {"cluster": "here"}}, "or $labels.cluster $externalLabels.cluster"),
        ({"external_labels": {"team": "rl"}}, ""),
    ],
)
def test_links_choose_the_cluster_of_the_run_as_the_grafana_that_they_lead_to_sees_it(
    settings: dict[str, Any], label: str
) -> None:
    (shown,) = (
        url for url in dashboards(frozenset({"grafana"}), Config.model_validate(settings)) if "var-run" in url
    )
    chosen = shown.partition("&var-cluster=")[2].partition("{{$r:=")[0]

    assert chosen == (f"{{{{{label} | urlquery | reReplaceAll `\\+` `%20`}}}}" if label else "")


@pytest.mark.parametrize(
    ("group", "alert", "shown"),
    [
        ("gpu", "GPUXid", "gpu?var-instance={{$labels.instance"),
        ("rollout", "EngineQueue", "rollout?var-server={{$labels.instance"),
        ("host", "DiskLow", "nodes?var-machine={{$labels.instance"),
        ("ray", "RayNodeLost", "nodes"),
        ("stack", "TargetDown", "stack"),
        ("stack", "SeriesLimit", "training?var-run={{$labels.run"),
        ("rl", "NeverStarted", "runs"),
    ],
)
def test_an_alert_leads_to_the_dashboard_that_shows_what_it_is_about(
    group: str, alert: str, shown: str
) -> None:
    link = _of_run(links(frozenset({"grafana"}), rules=FOLDER / f"{group}.yml")[alert])

    assert link.partition(" |")[0] == f"http://127.0.0.1:3000/d/stepwatch-{shown}"


def _of_run(link: str) -> str:
    """The link of an alert that may or may not have a run, where it has one."""
    return link.replace("{{if $labels.run}}", "")
