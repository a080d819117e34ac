"""Rollout and Nodes, answered by a real Prometheus that scrapes vLLM, SGLang, node_exporter and Ray."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.grafana.conftest import Json
from tests.grafana.queries import View, panels_of
from tests.grafana.scraped import ENDED, SCRAPED, SERVERS, recorded
from tests.real import PrometheusServer, query
from tests.real.listening import Exposing
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

RUN = "ppo/a"


def run() -> Iterator[str]:
    yield f'rl_step{{run="{RUN}"}} 7'
    yield f'rl_step_seconds{{run="{RUN}"}} 100'
    yield f'rl_rollout_seconds{{run="{RUN}"}} 60'
    yield f'rl_update_actor_seconds{{run="{RUN}"}} 30'


PAGES = {**SCRAPED, "run": run}
NOT_REPORTED = {"sglang-old": {"Preemptions", "Response length", "Servers side by side"}}
"""Panels of which a version of an engine has nothing, or not all."""
NOBODY = "127.0.0.1:1"
DOWN = {"instance": "gone:9100", "role": "host"}
"""A machine whose node_exporter does not answer."""
OF_RUN = "sglang"
"""The server that is known to be the run's."""


def settings(port: int) -> Json:
    """Each page under an address of its own; those of vLLM are scraped by two jobs."""
    jobs = [(name, name) for name in PAGES] + [("vllm-twin", "vllm")]
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": job,
                "metrics_path": f"/{page}",
                "static_configs": [
                    {
                        "targets": [f"127.0.0.1:{port}"],
                        "labels": {
                            "instance": f"{page}:8000",
                            **({"role": "rollout"} if page in SERVERS else {}),
                            **({"role": "host"} if page == "node" else {}),
                            **({"run": RUN} if page == OF_RUN else {}),
                        },
                    }
                ],
            }
            for job, page in jobs
        ]
        + [{"job_name": "gone", "static_configs": [{"targets": [NOBODY], "labels": DOWN}]}],
    }


@pytest.fixture(name="url", scope="module", params=["2.42", "3.13"])
def _url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with Exposing(lambda path: "\n".join(PAGES[path]())) as exporters:
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings(exporters.port)))
        with PrometheusServer(request.param, folder) as server:
            # More than the 4 s over which a curve's rate is taken, and a quarter of a minute for `idle`.
            wanted = {
                "count_over_time(up[1m]) > 6": len(PAGES) + 2,
                "sum without (engine) (vllm:num_requests_running)[5m:15s]": 3,
            }
            eventually(
                lambda: all(len(query(server.url, expr)) == count for expr, count in wanted.items()),
                pause=0.2,
            )
            yield server.url


def bounds(server: str) -> set[float]:
    """Of the histogram of a server's requests."""
    page, _, _ = SERVERS[server]
    found = re.findall(r'e2e_request_latency_seconds_bucket.*le="([^"]+)"', "\n".join(recorded(page)))
    return set(map(float, found))


Figures = dict[str, list[tuple[dict[str, str], float]]]


def shown(dashboard: Json, url: str, **variables: str) -> dict[str, Figures]:
    """What each panel shows: labels and values by the letter and legend of the query."""
    view = View(0, 60, {"run": RUN, "server": ".*", "machine": ".*", **variables}, interval=1)
    return {
        panel["title"]: {
            f"{target['refId']} {target['legendFormat']}": [
                (each["metric"], float(each["value"][1]))
                for each in query(url, view.expression(target["expr"]))
            ]
            for target in panel["targets"]
        }
        for panel in panels_of(dashboard)
    }


@pytest.mark.parametrize("server", SERVERS)
def test_each_panel_has_data_of_each_engine_under_the_names_of_each_version(
    default: dict[str, Json], url: str, server: str
) -> None:
    found = shown(default["stepwatch-rollout"], url, server=f"{server}:8000")

    assert found.pop("Firing") == {"A __auto": []}
    assert NOT_REPORTED.get(server, set()) == {
        title for title, figures in found.items() if not all(figures.values())
    }
    for title, figures in found.items():
        for name, values in figures.items():
            assert len({str(labels) for labels, _ in values}) == len(values), f"{title}, {name}"


@pytest.mark.parametrize("server", SERVERS)
def test_figures_of_an_engine_are_the_sum_of_its_ranks_however_often_it_is_scraped(
    default: dict[str, Json], url: str, server: str
) -> None:
    found = shown(default["stepwatch-rollout"], url, server=f"{server}:8000")

    def figure(title: str, letter: str = "A") -> float:
        ((_, value),) = next(found[title][name] for name in found[title] if name.startswith(letter))
        return value

    _, _, ranks = SERVERS[server]
    assert (figure("Servers"), figure("Running now"), figure("Waiting now")) == (1, 4 * ranks, 3 * ranks)
    assert figure("KV cache") == 0.3
    assert figure("Prefix cache") == pytest.approx(0.75, rel=0.05)
    assert figure("Token throughput") == pytest.approx((100 if "sglang" in server else 50) * ranks, rel=0.2)
    if "Preemptions" not in NOT_REPORTED.get(server, ()):
        assert figure("Preemptions") == pytest.approx(30 * ranks, rel=0.2)
    assert figure("Request time") == pytest.approx(1, rel=0.05), "half of the requests take a second or less"
    assert figure("Request time", "C") == pytest.approx(9.8, rel=0.05)
    assert figure("Waiting for training") == 0
    assert (figure("Waiting for training", "B"), figure("Waiting for training", "C")) == (0.6, 0.3)


@pytest.mark.parametrize(("of", "series"), [(RUN, 1), ("ppo/other", 2 + 2 + 1 + 2 + 3)])
def test_latencies_of_a_run_are_those_of_its_servers_else_of_all(
    default: dict[str, Json], url: str, of: str, series: int
) -> None:
    found = shown(default["stepwatch-training"], url, run=of)
    buckets = {labels["le"]: value for labels, value in found["Rollout latency"]["A {{le}}"]}

    assert {float(bound) for bound in buckets} >= bounds(OF_RUN)
    assert buckets["+Inf"] == pytest.approx(series * ENDED, rel=0.2)


def test_a_machine_that_is_down_is_said_to_be_down_and_takes_no_column_away(
    default: dict[str, Json], url: str
) -> None:
    every, gone = (shown(default["stepwatch-nodes"], url, machine=each) for each in (".*", "gone:9100"))

    (memory,) = (each for each in panels_of(default["stepwatch-nodes"]) if each["title"] == "Memory")
    assert memory["fieldConfig"]["defaults"]["noValue"].endswith("node_exporter is down: see Machines")
    assert [value for figures in every["Machines"].values() for _, value in figures] == [1, 2]
    assert [value for figures in gone["Machines"].values() for _, value in figures] == [0, 1]
    for machines, expected in ((every, ["gone:9100", "node:8000"]), (gone, ["gone:9100"])):
        table = machines["Machines side by side"]
        assert {tuple(sorted(labels["instance"] for labels, _ in each)) for each in table.values()} == {
            tuple(expected)
        }
        states = {labels["instance"]: value for labels, value in table["J __auto"]}
        assert states == {each: float(each != "gone:9100") for each in expected}
