"""Which metrics there are for rules and panels to ask for: who serves each, its type, and its labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tests.rules.rendered import CHECKOUT
from tests.rules.selectors import Selector

COUNTER, GAUGE = "counter", "gauge"


class Metric(NamedTuple):
    """Its type, and the labels that its series may have."""

    type: str
    labels: frozenset[str]


TARGET = frozenset({"job", "instance", "role"})
"""What Prometheus adds to whatever it scrapes."""


def _scraped(kind: str, *labels: str) -> Metric:
    return Metric(kind, TARGET.union(labels))


FILE_SYSTEM = ("device", "fstype", "mountpoint")
VLLM = ("engine", "model_name")
SGLANG = ("engine_type", "model_name", "tp_rank", "pp_rank")
DCGM_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname")

FOREIGN: Mapping[str, Mapping[str, Metric]] = {
    "Prometheus, of what it scrapes and judges": {
        "up": _scraped(GAUGE),
        "scrape_duration_seconds": _scraped(GAUGE),
        "scrape_samples_scraped": _scraped(GAUGE),
        "ALERTS": Metric(GAUGE, TARGET | {"alertname", "alertstate", "severity", "topic", "run"}),
        "ALERTS_FOR_STATE": Metric(GAUGE, TARGET | {"alertname", "severity", "topic", "run"}),
    },
    "Prometheus": {
        "prometheus_config_last_reload_success_timestamp_seconds": _scraped(GAUGE),
        "prometheus_config_last_reload_successful": _scraped(GAUGE),
        "prometheus_notifications_dropped_total": _scraped(COUNTER),
        "prometheus_notifications_errors_total": _scraped(COUNTER, "alertmanager"),
        "prometheus_rule_evaluation_failures_total": _scraped(COUNTER, "rule_group"),
        "prometheus_rule_group_last_duration_seconds": _scraped(GAUGE, "rule_group"),
        "prometheus_rule_group_last_evaluation_timestamp_seconds": _scraped(GAUGE, "rule_group"),
        "prometheus_rule_group_iterations_missed_total": _scraped(COUNTER, "rule_group"),
        "prometheus_target_scrapes_exceeded_sample_limit_total": _scraped(COUNTER),
        "prometheus_tsdb_compactions_failed_total": _scraped(COUNTER),
        "prometheus_tsdb_head_truncations_failed_total": _scraped(COUNTER),
        "prometheus_tsdb_lowest_timestamp_seconds": _scraped(GAUGE),
        "prometheus_tsdb_retention_limit_bytes": _scraped(GAUGE),
        "prometheus_tsdb_storage_blocks_bytes": _scraped(GAUGE),
        "prometheus_tsdb_wal_corruptions_total": _scraped(COUNTER),
        "prometheus_remote_storage_queue_highest_sent_timestamp_seconds": _scraped(
            GAUGE, "remote_name", "url"
        ),
        "prometheus_remote_storage_samples_failed_total": _scraped(COUNTER, "remote_name", "url"),
        "prometheus_tsdb_wal_writes_failed_total": _scraped(COUNTER),
    },
    "Alertmanager": {
        "alertmanager_config_last_reload_successful": _scraped(GAUGE),
        "alertmanager_notifications_total": _scraped(COUNTER, "integration", "receiver_name"),
        # Alertmanager names the receiver from 0.27 on
        "alertmanager_notifications_failed_total": _scraped(
            COUNTER, "integration", "reason", "receiver_name"
        ),
    },
    "node_exporter": {
        "node_cpu_seconds_total": _scraped(COUNTER, "cpu", "mode"),
        "node_disk_io_time_seconds_total": _scraped(COUNTER, "device"),
        "node_disk_read_bytes_total": _scraped(COUNTER, "device"),
        "node_disk_written_bytes_total": _scraped(COUNTER, "device"),
        "node_filesystem_avail_bytes": _scraped(GAUGE, *FILE_SYSTEM),
        "node_filesystem_device_error": _scraped(GAUGE, *FILE_SYSTEM),
        "node_filesystem_readonly": _scraped(GAUGE, *FILE_SYSTEM),
        "node_filesystem_size_bytes": _scraped(GAUGE, *FILE_SYSTEM),
        **{
            f"node_infiniband_{name}_total": _scraped(COUNTER, "device", "port")
            for name in (
                "excessive_buffer_overrun_errors",
                "link_downed",
                "link_error_recovery",
                "local_link_integrity_errors",
                "port_errors_received",
                "symbol_error",
            )
        },
        "node_infiniband_rate_bytes_per_second": _scraped(GAUGE, "device", "port"),
        "node_infiniband_state_id": _scraped(GAUGE, "device", "port"),
        "node_infiniband_port_data_received_bytes_total": _scraped(COUNTER, "device", "port"),
        "node_infiniband_port_data_transmitted_bytes_total": _scraped(COUNTER, "device", "port"),
        "node_load5": _scraped(GAUGE),
        "node_memory_MemAvailable_bytes": _scraped(GAUGE),
        "node_memory_MemTotal_bytes": _scraped(GAUGE),
        "node_network_receive_bytes_total": _scraped(COUNTER, "device"),
        "node_network_transmit_bytes_total": _scraped(COUNTER, "device"),
        "node_time_seconds": _scraped(GAUGE),
        "node_vmstat_oom_kill": _scraped(COUNTER),
    },
    "Ray": {
        "ray_memory_manager_worker_eviction_total": _scraped(COUNTER, "Type", "Name"),
        "ray_node_cpu_utilization": _scraped(GAUGE, "ip"),
        "ray_node_disk_free": _scraped(GAUGE, "ip"),
        "ray_node_disk_usage": _scraped(GAUGE, "ip"),
        "ray_node_mem_total": _scraped(GAUGE, "ip"),
        "ray_node_mem_used": _scraped(GAUGE, "ip"),
        "ray_object_store_available_memory": _scraped(GAUGE),
        "ray_object_store_memory": _scraped(GAUGE, "Location", "ObjectState"),
        "ray_object_store_used_memory": _scraped(GAUGE),
    },
    # Ray Serve's has another prefix.
    "vLLM": {
        f"{prefix}{name}": _scraped(kind, *VLLM, *labels)
        for prefix in ("vllm:", "ray_vllm_")
        for name, kind, *labels in (
            ("e2e_request_latency_seconds_bucket", COUNTER, "le"),
            ("generation_tokens_total", COUNTER),
            ("gpu_cache_usage_perc", GAUGE),
            ("gpu_prefix_cache_hits_total", COUNTER),
            ("gpu_prefix_cache_queries_total", COUNTER),
            ("inter_token_latency_seconds_bucket", COUNTER, "le"),
            ("kv_cache_usage_perc", GAUGE),
            ("num_preemptions_total", COUNTER),
            ("num_requests_running", GAUGE),
            ("num_requests_waiting", GAUGE),
            ("prefix_cache_hits_total", COUNTER),
            ("prefix_cache_queries_total", COUNTER),
            ("prompt_tokens_total", COUNTER),
            ("request_generation_tokens_bucket", COUNTER, "le"),
            ("request_success_total", COUNTER, "finished_reason"),
            ("time_per_output_token_seconds_bucket", COUNTER, "le"),
            ("time_to_first_token_seconds_bucket", COUNTER, "le"),
        )
    },
    "SGLang": {
        f"sglang{mark}{name}": _scraped(kind, *SGLANG, *labels)
        for mark in ":_"
        for name, kind, *labels in (
            ("cache_hit_rate", GAUGE),
            ("e2e_request_latency_seconds_bucket", COUNTER, "le"),
            ("gen_throughput", GAUGE),
            ("generation_tokens_histogram_bucket", COUNTER, "le"),
            ("generation_tokens_total", COUNTER),
            ("inter_token_latency_seconds_bucket", COUNTER, "le"),
            ("num_queue_reqs", GAUGE),
            ("num_requests_total", COUNTER),
            ("num_retracted_requests_total", COUNTER),
            ("num_running_reqs", GAUGE),
            ("prompt_tokens_total", COUNTER),
            ("time_to_first_token_seconds_bucket", COUNTER, "le"),
            ("token_usage", GAUGE),
        )
    },
    "verl, by hand with prometheus_client": {
        "verl_average_reward": _scraped(GAUGE),
        "verl_gpu_memory_used_bytes": _scraped(GAUGE),
        **{
            f"verl_sample_generation_seconds_{part}": _scraped(COUNTER, *labels)
            for part, *labels in (("bucket", "le"), ("count",), ("sum",))
        },
        "verl_training_steps_total": _scraped(COUNTER),
    },
    "NVIDIA's dcgm-exporter, where it is used instead of ours": {
        "DCGM_FI_DEV_GPU_UTIL": _scraped(GAUGE, *DCGM_LABELS),
        "DCGM_FI_DEV_FB_USED": _scraped(GAUGE, *DCGM_LABELS),
        "DCGM_FI_DEV_FB_FREE": _scraped(GAUGE, *DCGM_LABELS),
    },
}
"""Metrics of programs that are not ours, by program."""

DOCUMENTED = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|([^|]*)\| [^|]+ \|$", re.MULTILINE)
"""A row of docs/metrics.md, to which tests hold our exporters: name, type, unit, labels, meaning."""

PAGE = (CHECKOUT / "docs/metrics.md").read_text()

METRICS: Mapping[str, Metric] = {
    **{
        name: _scraped(kind, *re.findall(r"`(\w+)`", labels))
        for name, kind, _, labels in DOCUMENTED.findall(PAGE)
    },
    **{name: metric for metrics in FOREIGN.values() for name, metric in metrics.items()},
}
"""Every metric, ours and others'."""


def asked(selector: Selector) -> list[str]:
    """The names that a selector asks for: its own, or those that its pattern takes; the pattern if none."""
    if selector.name:
        return [selector.name]
    ((_, sign, wanted),) = [each for each in selector.matchers if each[0] == "__name__"]
    if sign == "=":
        return [wanted]
    return [name for name in METRICS if re.fullmatch(wanted, name)] or [wanted]
