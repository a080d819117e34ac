"""Rollout and Nodes, answered by a real Prometheus that scrapes vLLM, SGLang, node_exporter and Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.grafana.conftest import Json
from tests.grafana.queries import View, panels_of
from tests.real import PrometheusServer, query
from tests.real.listening import Exposing
from tests.real.waiting import eventually
from tests.rules.rendered import CHECKOUT

pytestmark = pytest.mark.e2e

RUN = "ppo/a"
STARTED = time.time()
COMMON = {
    "prompts": "prompt_tokens_total",
    "generated": "generation_tokens_total",
    "first": "time_to_first_token_seconds",
    "next": "inter_token_latency_seconds",
    "request": "e2e_request_latency_seconds",
}
VLLM = {
    **COMMON,
    "running": "num_requests_running",
    "waiting": "num_requests_waiting",
    "cache": "kv_cache_usage_perc",
    "preempted": "num_preemptions_total",
    "looked up": "prefix_cache_queries_total",
    "found": "prefix_cache_hits_total",
    "length": "request_generation_tokens",
}
OLD_VLLM = {
    **VLLM,
    "cache": "gpu_cache_usage_perc",
    "looked up": "gpu_prefix_cache_queries_total",
    "found": "gpu_prefix_cache_hits_total",
    "next": "time_per_output_token_seconds",
}
SGLANG = {
    **COMMON,
    "running": "num_running_reqs",
    "waiting": "num_queue_reqs",
    "cache": "token_usage",
    "preempted": "num_retracted_requests_total",
    "hit ratio": "cache_hit_rate",
    "throughput": "gen_throughput",
    "length": "generation_tokens_histogram",
}
SERVERS = {
    "vllm": ("vllm:", VLLM),
    "vllm-old": ("vllm:", OLD_VLLM),
    "ray-serve": ("ray_vllm_", VLLM),
    "sglang": ("sglang:", SGLANG),
    "sglang-underscore": ("sglang_", SGLANG),
}
GAUGES = {"running": 4, "waiting": 3, "cache": 0.3, "hit ratio": 0.75, "throughput": 100}
"""Of one rank; each server has two."""
PER_SECOND = {"prompts": 200, "generated": 50, "preempted": 0.5, "looked up": 100, "found": 75}
BUCKETS = {"0.1": 0, "1": 2, "10": 4, "+Inf": 4}
"""Requests that end within each second, by the seconds that they took."""


def engine(prefix: str, names: Mapping[str, str]) -> Iterator[str]:
    """What a server with two ranks reports."""
    age = time.time() - STARTED
    for rank in "01":
        labels = f'model_name="m",engine="{rank}"' if "vllm" in prefix else f'model_name="m",dp_rank="{rank}"'
        for what, name in names.items():
            if what in GAUGES:
                yield f"{prefix}{name}{{{labels}}} {GAUGES[what]}"
            elif what in PER_SECOND:
                yield f"{prefix}{name}{{{labels}}} {PER_SECOND[what] * age}"
            else:
                for bound, rate in BUCKETS.items():
                    yield f'{prefix}{name}_bucket{{{labels},le="{bound}"}} {rate * age}'


def machine() -> Iterator[str]:
    """What node_exporter reports of a machine whose two processors are busy a fifth of the time."""
    age = time.time() - STARTED
    for cpu in "01":
        for mode, share in {"idle": 0.75, "iowait": 0.05, "user": 0.2}.items():
            yield f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {share * age}'
    yield "node_load5 1"
    yield "node_memory_MemTotal_bytes 1000"
    yield "node_memory_MemAvailable_bytes 400"
    yield "node_vmstat_oom_kill 0"
    # one drive mounted twice, one full tmpfs, and a file server that does not answer
    for device, kind, mount, free in (
        ("/dev/vda", "ext4", "/", 250),
        ("/dev/vda", "ext4", "/data", 250),
        ("tmpfs", "tmpfs", "/dev/shm", 0),
    ):
        labels = f'device="{device}",fstype="{kind}",mountpoint="{mount}"'
        yield f"node_filesystem_size_bytes{{{labels}}} 1000"
        yield f"node_filesystem_avail_bytes{{{labels}}} {free}"
        yield f"node_filesystem_readonly{{{labels}}} 0"
        yield f"node_filesystem_device_error{{{labels}}} 0"
    yield 'node_filesystem_device_error{device="nas:/",fstype="nfs",mountpoint="/nas"} 1'
    for device in ("vda", "dm-0"):
        yield f'node_disk_io_time_seconds_total{{device="{device}"}} {0.5 * age}'
        yield f'node_disk_read_bytes_total{{device="{device}"}} {1000 * age}'
        yield f'node_disk_written_bytes_total{{device="{device}"}} {3000 * age}'
    for device in ("eth0", "lo", "veth06d6894"):
        yield f'node_network_receive_bytes_total{{device="{device}"}} {2000 * age}'
        yield f'node_network_transmit_bytes_total{{device="{device}"}} {5000 * age}'
    for way in ("received", "transmitted"):
        yield f'node_infiniband_port_data_{way}_bytes_total{{device="mlx5_0",port="1"}} {1e6 * age}'


def ray() -> Iterator[str]:
    """A head as recorded, and one worker that it has killed."""
    yield (CHECKOUT / "tests/logs/ray/head.prom").read_text().strip()
    yield 'ray_memory_manager_worker_eviction_total{Type="task",Name="f"} 1'


def run() -> Iterator[str]:
    yield f'rl_step{{run="{RUN}"}} 7'
    yield f'rl_step_seconds{{run="{RUN}"}} 100'
    yield f'rl_rollout_seconds{{run="{RUN}"}} 60'
    yield f'rl_update_actor_seconds{{run="{RUN}"}} 30'


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    **{name: partial(engine, *spelt) for name, spelt in SERVERS.items()},
    "node": machine,
    "ray": ray,
    "run": run,
}
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
                            **({"run": RUN} if page == OF_RUN else {}),
                        },
                    }
                ],
            }
            for job, page in jobs
        ],
    }


@pytest.fixture(name="url", scope="module", params=["2.42", "3.13"])
def _url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with Exposing(lambda path: "\n".join(PAGES[path]())) as exporters:
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings(exporters.port)))
        with PrometheusServer(request.param, folder) as server:
            # More than the 4 s over which a curve's rate is taken, and a quarter of a minute for `idle`.
            wanted = {
                "count_over_time(up[1m]) > 6": len(PAGES) + 1,
                "sum without (engine) (vllm:num_requests_running)[5m:15s]": 3,
            }
            eventually(
                lambda: all(len(query(server.url, expr)) == count for expr, count in wanted.items()),
                pause=0.2,
            )
            yield server.url


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
    for title, figures in found.items():
        for name, values in figures.items():
            assert values, f"{title}, {name}"
            assert len({str(labels) for labels, _ in values}) == len(values), f"{title}, {name}"


@pytest.mark.parametrize("server", SERVERS)
def test_figures_of_an_engine_are_the_sum_of_its_ranks_however_often_it_is_scraped(
    default: dict[str, Json], url: str, server: str
) -> None:
    found = shown(default["stepwatch-rollout"], url, server=f"{server}:8000")

    def figure(title: str, letter: str = "A") -> float:
        ((_, value),) = next(found[title][name] for name in found[title] if name.startswith(letter))
        return value

    assert (figure("Servers"), figure("Running"), figure("Waiting")) == (1, 8, 6)
    assert figure("KV cache") == 0.3
    assert figure("Prefix cache") == pytest.approx(0.75, rel=0.05)
    assert figure("Token throughput") == pytest.approx(200 if "sglang" in server else 100, rel=0.2)
    assert figure("Preemptions") == pytest.approx(60, rel=0.2)
    assert figure("Request time") == pytest.approx(1, rel=0.05), "half of the requests take a second or less"
    assert figure("Request time", "C") == pytest.approx(9.8, rel=0.05)
    assert figure("Waiting for training") == 0
    assert (figure("Waiting for training", "B"), figure("Waiting for training", "C")) == (0.6, 0.3)


def test_all_servers_stand_side_by_side_once(default: dict[str, Json], url: str) -> None:
    found = shown(default["stepwatch-rollout"], url)

    for name, values in found["Servers side by side"].items():
        assert sorted(labels["instance"] for labels, _ in values) == sorted(
            f"{each}:8000" for each in SERVERS
        ), name
    assert [value for values in found["Servers"].values() for _, value in values] == [5, 5]
    assert [value for _, value in found["Running"]["A requests"]] == [40]


def test_a_heatmap_has_the_buckets_of_the_histogram(default: dict[str, Json], url: str) -> None:
    found = shown(default["stepwatch-rollout"], url, server="vllm:8000")
    (panel,) = (
        each for each in panels_of(default["stepwatch-rollout"]) if each["title"] == "Request time spread"
    )

    buckets = {labels["le"]: value for labels, value in found["Request time spread"]["A {{le}}"]}
    assert {float(bound) for bound in buckets} == {float(bound) for bound in BUCKETS}
    assert (panel["type"], panel["targets"][0]["format"], panel["options"]["calculate"]) == (
        "heatmap",
        "heatmap",
        False,
    )


@pytest.mark.parametrize(("of", "servers"), [(RUN, 1), ("ppo/other", len(SERVERS) + 1)])
def test_latencies_of_a_run_are_those_of_its_servers_else_of_all(
    default: dict[str, Json], url: str, of: str, servers: int
) -> None:
    found = shown(default["stepwatch-training"], url, run=of)
    buckets = {labels["le"]: value for labels, value in found["Rollout latency"]["A {{le}}"]}

    assert {float(bound) for bound in buckets} == {float(bound) for bound in BUCKETS}
    assert buckets["+Inf"] == pytest.approx(servers * 2 * BUCKETS["+Inf"], rel=0.2), "of two ranks each"


def test_each_panel_about_machines_has_data(default: dict[str, Json], url: str) -> None:
    found = shown(default["stepwatch-nodes"], url)

    assert found.pop("Firing") == {"A __auto": []}
    for title, figures in found.items():
        for name, values in figures.items():
            assert values, f"{title}, {name}"


def test_figures_of_a_machine_count_no_part_of_a_drive_and_no_network_of_containers(
    default: dict[str, Json], url: str
) -> None:
    found = shown(default["stepwatch-nodes"], url, machine="node:8000")
    figures = {
        title: found[title]["A {{machine}}"][0][1]
        for title in (
            "CPU",
            "I/O wait",
            "Memory",
            "Disk space",
            "Disk traffic",
            "Disk busy",
            "Network",
            "InfiniBand",
        )
    }

    assert found["Machines side by side"]["A __auto"][0][1] == pytest.approx(0.2, rel=0.05)
    assert found["CPU"]["A {{machine}}"][0][0] == {"instance": "node:8000", "machine": "node"}
    assert figures == pytest.approx(
        {
            "CPU": 0.2,
            "I/O wait": 0.05,
            "Memory": 0.6,
            "Disk space": 0.75,
            "Disk traffic": 4000,
            "Disk busy": 0.5,
            "Network": 7000,
            "InfiniBand": 2e6,
        },
        rel=0.2,
    )


def test_the_first_worker_that_ray_kills_is_counted(default: dict[str, Json], url: str) -> None:
    found = shown(default["stepwatch-nodes"], url)

    assert found["Ray nodes"]["F __auto"] == [({"instance": "ray:8000"}, 1)]


def test_a_file_system_that_does_not_answer_is_listed_as_not_readable(
    default: dict[str, Json], url: str
) -> None:
    found = shown(default["stepwatch-nodes"], url)
    used, readable = (found["File systems"][f"{letter} __auto"] for letter in "AE")

    assert {labels["mountpoint"]: value for labels, value in used} == {"/": 0.75, "/data": 0.75}
    assert {labels["mountpoint"] for labels, value in readable if value == 1} == {"/nas"}
