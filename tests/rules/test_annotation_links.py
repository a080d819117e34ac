"""Where the annotations of rules lead."""

from __future__ import annotations

from pathlib import PurePosixPath

import yaml

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.render.generator import render_all
from stepwatch.system.environment import CHECKOUT

RULES = PurePosixPath("prometheus/generated/rules/rl.yml")


def dashboards(parts: frozenset[str]) -> set[str]:
    def place(config: Config) -> Deployment:
        return OnThisMachine(config, parts)

    files = render_all(Config(), CHECKOUT, place, services=["prometheus"])
    groups = yaml.safe_load(files[RULES])["groups"]
    return {
        rule["annotations"]["dashboard_url"] for group in groups for rule in group["rules"] if "alert" in rule
    }


def test_alerts_on_runs_lead_to_grafana_or_where_there_is_none_to_the_exporters_page() -> None:
    shown = {url.split("?")[0] for url in dashboards(frozenset({"grafana"}))}
    page, overview = sorted(dashboards(frozenset()), key=len, reverse=True)

    assert shown == {f"http://127.0.0.1:3000/d/stepwatch-{name}" for name in ("training", "runs")}
    assert page.startswith("http://127.0.0.1:9410/run/{{$labels.run | urlquery")
    assert overview == "http://127.0.0.1:9410/"
