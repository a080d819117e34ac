"""Pages of rollout servers, a machine and Ray, as their exporters serve them: with values that are known."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from tests.rules.rendered import CHECKOUT

STARTED = time.time()
SERVERS = {
    "vllm": ("vllm-0.33.0", "vllm:", 2),
    "vllm-old": ("vllm-0.8.5", "vllm:", 1),
    "ray-serve": ("ray_vllm-0.33.0", "ray_vllm_", 2),
    "sglang": ("sglang-0.5.23", "sglang:", 2),
    "sglang-old": ("sglang-0.4.6", "sglang:", 1),
    "sglang-underscore": ("sglang-0.5.23", "sglang_", 2),
}
"""Of each server its recorded page, the prefix that it gets, and its ranks that report on requests."""
GAUGES = {
    "running": ("num_requests_running", "num_running_reqs"),
    "waiting": ("num_requests_waiting", "num_queue_reqs"),
    "cache": ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage"),
    "hit ratio": ("cache_hit_rate",),
    "throughput": ("gen_throughput",),
}
VALUES = {"running": 4, "waiting": 3, "cache": 0.3, "hit ratio": 0.75, "throughput": 100}
"""Of one rank."""
COUNTERS = {
    "prompts": ("prompt_tokens_total",),
    "generated": ("generation_tokens_total",),
    "preempted": ("num_preemptions_total", "num_retracted_requests_total"),
    "looked up": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    "found": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
}
PER_SECOND = {"prompts": 200, "generated": 50, "preempted": 0.5, "looked up": 100, "found": 75}
"""Of one series."""
ENDED = 4
"""Requests that end within each second, half of them after a second or less, none after more than 10."""


@cache
def recorded(page: str) -> tuple[str, ...]:
    """The lines of an engine's page, as `tests.real.engines` recorded it."""
    return tuple((CHECKOUT / f"tests/logs/engines/{page}.prom").read_text().splitlines())


def _age(at: float | None) -> float:
    return (time.time() if at is None else at) - STARTED


def engine(page: str, prefix: str, at: float | None = None) -> Iterator[str]:
    """What a server reports now, or at a time: the series that were recorded, with values that are known."""
    age = _age(at)
    values = {name: VALUES[what] for what, names in GAUGES.items() for name in names}
    values |= {name: age * PER_SECOND[what] for what, names in COUNTERS.items() for name in names}
    for line in recorded(page):
        if not line.startswith("#"):
            series, _, _ = line.rpartition(" ")
            name = re.sub("^(ray_vllm_|vllm:|sglang:)", "", series.partition("{")[0])
            if bound := re.search(r'le="([^"]+)"', series):
                value = age * ENDED * (0 if float(bound[1]) < 1 else 0.5 if float(bound[1]) < 10 else 1)
            else:
                value = values.get(name, 0)
            yield f"{prefix}{name}{{{series.partition('{')[2]} {value}"


def machine(at: float | None = None) -> Iterator[str]:
    """What node_exporter reports of a machine, now or at a time: two processors, busy a fifth of the time."""
    age = _age(at)
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


def ray(_: float | None = None) -> Iterator[str]:
    """A head as recorded, and one worker that it has killed."""
    yield (CHECKOUT / "tests/logs/ray/head.prom").read_text().strip()
    yield 'ray_memory_manager_worker_eviction_total{Type="task",Name="f"} 1'


SCRAPED: Mapping[str, Callable[..., Iterator[str]]] = {
    **{name: partial(engine, page, prefix) for name, (page, prefix, _) in SERVERS.items()},
    "node": machine,
    "ray": ray,
}
"""Each page by its name, which is that of its host too."""
