"""Pages of rollout servers, a machine and Ray, as their exporters serve them: with values that are known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from tests.rules.rendered import CHECKOUT

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


SCRAPED: Mapping[str, Callable[[], Iterator[str]]] = {
    **{name: partial(engine, *spelt) for name, spelt in SERVERS.items()},
    "node": machine,
    "ray": ray,
}
"""Each page by its name, which is that of its host too."""
