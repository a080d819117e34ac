"""Alerts on machines and on how runs end, in promtool's simulated time: since when each fires.

Every series leaves its healthy value slowly, so that when an alert begins is where its limit is.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.parity.product import NEWEST, rendered
from tests.real.tools import prometheus

LEFT_OUT = {"texts.yml"}
"""Rules without alerts that take most of the time."""
SECONDS = 15
"""Between two samples."""
GPU = 'job="gpu",instance="a:9411",gpu="0",uuid="GPU-0"'
NODE = 'job="node",role="host",instance="a:9100"'
ENGINE = 'job="rollout",role="rollout",instance="e:8000"'
RAY = 'job="ray",role="ray",instance="b:8080"'
RUN = 'job="runs",instance="x:9410",run="ppo/a"'
RUNS = 'job="runs",instance="x:9410"'
PROMETHEUS = 'job="prometheus",instance="p:9090"'

SERIES = {
    f"up{{{GPU.partition(',gpu')[0]}}}": "1x300",
    f"up{{{NODE}}}": "1x300",
    f"up{{{RUNS}}}": "1x200 0x100",
    f"up{{{PROMETHEUS}}}": "1x300",
    f"up{{{ENGINE}}}": "1x300",
    'up{job="rollout",role="rollout",instance="gone:8000"}': "1x100 0x200",
    'up{job="mine",instance="m:1"}': "1x100 0x200",
    f"gpu_up{{{GPU}}}": "1x300",
    'gpu_up{job="gpu",instance="a:9411",gpu="1",uuid="GPU-1",reason="lost"}': "1x40 0x260",
    'gpu_devices{job="gpu",instance="a:9411"}': "2x200 1x100",
    'gpu_devices_expected{job="gpu",instance="a:9411"}': "2x200 3x100",
    'gpu_exporter_nvml_up{job="gpu",instance="a:9411"}': "1x300",
    f'gpu_xid_errors_total{{{GPU},xid="79"}}': "0x80 1x220",
    f'gpu_xid_errors_total{{{GPU},xid="13"}}': "0x100 1x200",
    f'gpu_ecc_errors_total{{{GPU},type="uncorrected"}}': "0x120 1x180",
    f"gpu_row_remap_pending{{{GPU}}}": "0x60 1x240",
    f"gpu_row_remap_failed{{{GPU}}}": "0x70 1x230",
    f"gpu_recovery_action{{{GPU}}}": "0x60 4x60 1x180",
    f"gpu_temperature_margin_celsius{{{GPU}}}": "20-0.1x300",
    f'gpu_clock_event_active{{{GPU},reason="hardware_thermal"}}': "0x100 1x200",
    f'gpu_clock_event_active{{{GPU},reason="power_brake"}}': "0x140 1x160",
    f'gpu_nvlink_errors_total{{{GPU},type="crc_flit"}}': "0x80 0+10x60 600+3000x160",
    f'gpu_nvlink_errors_total{{{GPU},type="replay"}}': "0x160 0+0.1x140",
    f'gpu_pcie_link_generation{{{GPU},kind="current"}}': "5x100 4x200",
    f'gpu_pcie_link_generation{{{GPU},kind="max"}}': "5x300",
    f"gpu_utilization_ratio{{{GPU}}}": "0+0.005x300",
    f"gpu_fabric_state{{{GPU}}}": "3x150 2x150",
    f"node_memory_MemAvailable_bytes{{{NODE}}}": "1000-3.5x300",
    f"node_memory_MemTotal_bytes{{{NODE}}}": "1000x300",
    f'node_filesystem_avail_bytes{{{NODE},mountpoint="/",fstype="ext4"}}': "2000000000-7000000x300",
    f'node_filesystem_size_bytes{{{NODE},mountpoint="/",fstype="ext4"}}': "10000000000x300",
    f'ray_object_store_memory{{{RAY},Location="SPILLED"}}': "0+100000000x300",
    f"ray_node_disk_usage{{{RAY}}}": "800+0.5x300",
    f"ray_node_disk_free{{{RAY}}}": "200-0.5x300",
    f"ray_memory_manager_worker_eviction_total{{{RAY}}}": "0x150 2x150",
    f"vllm:kv_cache_usage_perc{{{ENGINE}}}": "0.5+0.005x99 0.99x200",
    f"vllm:num_requests_waiting{{{ENGINE}}}": "4x300",
    f"vllm:generation_tokens_total{{{ENGINE}}}": "0+1000x150 150000x150",
    f"vllm:num_preemptions_total{{{ENGINE}}}": "0+0.01x100 1+10x200",
    f'vllm:request_success_total{{{ENGINE},finished_reason="stop"}}': "0+10x120 1200x180",
    f'vllm:request_success_total{{{ENGINE},finished_reason="length"}}': "0+1x120 120+20x180",
    f'node_infiniband_link_downed_total{{{NODE},device="mlx5_0",port="1"}}': "0x100 1x200",
    f'node_infiniband_symbol_error_total{{{NODE},device="mlx5_1",port="1"}}': "0+2x300",
    f'prometheus_rule_evaluation_failures_total{{{PROMETHEUS},rule_group="x"}}': "0x100 1x10 3x190",
    f"prometheus_notifications_dropped_total{{{PROMETHEUS}}}": "0x100 0+1x200",
    f"prometheus_config_last_reload_success_timestamp_seconds{{{PROMETHEUS}}}": "0x300",
    f"prometheus_config_last_reload_successful{{{PROMETHEUS}}}": "1x120 0x180",
    f"prometheus_tsdb_wal_corruptions_total{{{PROMETHEUS}}}": "0x120 1x180",
    f'stepwatch_mount_hung_since_timestamp_seconds{{{RUNS},mount="/data"}}': "_x100 1500x200",
    f'stepwatch_target_up{{{RUNS},source="mlflow",name="http://m"}}': "1x100 0x200",
    f"rl_raw_keys_refused_total{{{RUN}}}": "0+10x300",
    f'rl_run_state{{{RUN},state="running"}}': "1x300",
}
ENDS = ("finished", "failed", "vanished", "stopped")
OF_RUNS = {
    f"up{{{RUNS}}}": "1x200",
    **{
        f'rl_run_state{{{RUNS},run="ppo/{end}",state="{state}"}}': "1x80 0x60"
        if state == "running"
        else ("0x80 1x60" if state == end else "0x140")
        for end in ENDS
        for state in ("running", *ENDS)
    },
    **{
        f'rl_{name}{{{RUNS},run="ppo/{run}"}}': values
        for run in ("a", "failed", "stopped")
        for name, values in {
            "step": "10+1x30 40x110",
            "total_steps": "200x140",
            "records_total": "10+1x30 40x110",
            "last_step_timestamp_seconds": "0+15x30 450x110",
            "step_interval_typical_seconds": "15x140",
        }.items()
    },
    f'rl_run_state{{{RUN},state="running"}}': "1x140",
    f"rl_restarts_total{{{RUN}}}": "0x40 0+0.1x100",
    f"rl_resumes_total{{{RUN}}}": "0x40 0+0.1x100",
}
"""In promtool's notation, by selector."""
FOUND = re.compile(r"alertname: (\w+), time: (\w+),|Labels:{(.*?)}\s+Annotations:", re.DOTALL)


def alerts() -> Iterator[str]:
    """Each alert that fires, with its labels, and from when to when."""
    files = [file for file in sorted(_rules().glob("*.yml")) if file.name not in LEFT_OUT]
    of_runs = [file for file in files if file.name.startswith("rl")]
    yield from _alerts([file for file in files if file not in of_runs], SERIES, 75, 300)
    # Evaluated each 5 seconds, and so for a shorter time.
    yield from _alerts(of_runs, OF_RUNS, 30, 60)


def _alerts(files: list[Path], series: Mapping[str, str], minutes: int, step: int) -> Iterator[str]:
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    names = sorted({rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule})
    times = range(0, minutes * 60, step)
    looks = [
        {"eval_time": f"{time}s", "alertname": name, "exp_alerts": []} for time in times for name in names
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    tests = [{"interval": f"{SECONDS}s", "input_series": inputs, "alert_rule_test": looks}]
    document = {
        "rule_files": [str(file) for file in files],
        "evaluation_interval": f"{SECONDS}s",
        "tests": tests,
    }
    with TemporaryDirectory(prefix="stepwatch-parity-") as folder:
        file = Path(folder, "test.yml")
        file.write_text(json.dumps(document))
        tool = prometheus(NEWEST).tool
        done = subprocess.run([tool, "test", "rules", file], capture_output=True, text=True, check=False)
    fired: dict[str, list[int]] = {}
    name, at = "", 0
    for alert, time, labels in FOUND.findall(done.stdout + done.stderr):
        if alert:
            name, at = alert, _seconds(time)
        else:
            about = re.sub(r'alertname="\w+", ', "", labels)
            fired.setdefault(f"{name} {about}", []).append(at)
    assert fired, done.stderr
    for each, seen in sorted(fired.items()):
        yield f"{each}: {min(seen)} to {max(seen)} s, {len(seen)} looks"
    yield f"silent: {' '.join(sorted(set(names) - {each.partition(' ')[0] for each in fired}))}"


def _rules() -> Path:
    return rendered() / "prometheus" / "generated" / "rules"


def _seconds(time: str) -> int:
    """Prometheus' duration, as a number."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", time))
