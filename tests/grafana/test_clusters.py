"""Runs of one name in two clusters, answered by a real Prometheus and drawn by Grafana's own libraries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stepwatch.alerts.model.runs import SHOWN_STATE, SHOWN_STATES
from tests.grafana.conftest import Json
from tests.grafana.drawn import drawing
from tests.grafana.queries import View
from tests.real import PrometheusServer, query
from tests.real.listening import Exposing
from tests.real.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RUN = "ppo/a"
REWARDS = {"east": 0.5, "west": 0.25}


def page(cluster: str) -> str:
    labels = f'run="{RUN}"'
    return "\n".join(
        (
            f'rl_run_info{{{labels},framework="verl",source="console"}} 1',
            f'rl_run_state{{{labels},state="running"}} 1',
            f"{SHOWN_STATE}{{{labels}}} {SHOWN_STATES.index('running') + 1}",
            f"rl_step{{{labels}}} 7",
            f"rl_last_step_timestamp_seconds{{{labels}}} 1795000000",
            f"rl_run_start_timestamp_seconds{{{labels}}} 1794990000",
            f"rl_reward{{{labels}}} {REWARDS[cluster]}",
        )
    )


@pytest.fixture(name="url")
def _url(tmp_path: Path) -> Iterator[str]:
    with Exposing(page) as exporters:
        jobs = [
            {
                "job_name": f"runs-{cluster}",
                "metrics_path": f"/{cluster}",
                "static_configs": [
                    {"targets": [f"127.0.0.1:{exporters.port}"], "labels": {"cluster": cluster}}
                ],
            }
            for cluster in REWARDS
        ]
        settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
        with PrometheusServer("3.13", tmp_path) as server:
            eventually(lambda: len(query(server.url, "count_over_time(rl_reward[1m]) > 3")) == 2, pause=0.2)
            yield server.url


def test_each_has_a_row_with_its_own_figures(default: dict[str, Json], url: str) -> None:
    now, every = time.time(), dict.fromkeys(("folder", "framework", "state"), ".*")
    with drawing() as pen:
        found = pen.show(default["stepwatch-runs"], url, View(now - 60, now, every, interval=1))
    rows = {
        row["cluster"]["text"]: (row["run"]["text"], row["state"]["text"], float(row["reward"]["text"]))
        for row in found["All runs"]
    }

    assert rows == {cluster: (RUN, "running", reward) for cluster, reward in REWARDS.items()}
    assert len(found["All runs"]) == 2
