"""Who is notified of what, as amtool reads the rendered routes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import yaml

from tests.parity.product import rendered
from tests.real.tools import alertmanager

TO = "webhook: {url: 'http://127.0.0.1:9/a'}"
CONFIGS = {
    "default": "",
    "one": f"receivers: [{{name: a, {TO}}}]\n",
    "several": f"""
time_intervals:
- name: office
  time_intervals: [{{times: ['09:00-17:00'], weekdays: ['monday:friday']}}]
receivers:
- {{name: ppo, {TO}, runs: ['ppo/*', 'grpo-?'], severities: [critical]}}
- {{name: kl, {TO}, topics: [kl, reward], matchers: ['cluster!="test"'], severities: [critical]}}
- {{name: gpus, {TO}, topics: [gpu], severities: [critical, warning]}}
- {{name: chat, {TO}, topics: [kl], active_time_intervals: [office]}}
- {{name: rest, {TO}}}
""",
}
RUN = {"run": "ppo/a"}
ALERTS = (
    {"alertname": "KLExplosion", "severity": "critical", "topic": "kl", **RUN},
    {"alertname": "KLExplosion", "severity": "critical", "topic": "kl", "run": "sft"},
    {"alertname": "KLExplosion", "severity": "critical", "topic": "kl", "run": "sft", "cluster": "test"},
    {"alertname": "KLHigh", "severity": "warning", "topic": "kl", **RUN},
    {"alertname": "RewardCollapse", "severity": "critical", "topic": "reward", "run": "grpo-1"},
    {"alertname": "RewardCollapse", "severity": "critical", "topic": "reward", "run": "grpo-12"},
    {"alertname": "SlowSteps", "severity": "warning", "topic": "progress", **RUN},
    {"alertname": "RunFailed", "severity": "critical", "topic": "progress", **RUN},
    {"alertname": "RunFinished", "severity": "info", "topic": "progress", **RUN},
    {"alertname": "GPULost", "severity": "critical", "topic": "gpu", "instance": "a:9411", "gpu": "0"},
    {"alertname": "GPUHot", "severity": "warning", "topic": "gpu", "instance": "a:9411", "gpu": "0"},
    {"alertname": "DiskLow", "severity": "critical", "topic": "stack", "instance": "a:9100"},
    {"alertname": "AlertingBroken", "severity": "critical", "topic": "stack", "fault": "x"},
    {"alertname": "NotificationFailures", "severity": "critical", "topic": "stack", "receiver_name": "kl"},
    {"alertname": "Watchdog", "severity": "critical", "topic": "stack"},
    {"alertname": "Mine", "severity": "page"},
    {"alertname": "Mine", "severity": "warning", "team": "me"},
)


def table() -> Iterator[str]:
    """The receivers of each alert, with each configuration; timings and inhibitions of the default one."""
    for name, config in CONFIGS.items():
        file = rendered(config) / "alertmanager" / "generated" / "alertmanager.yml"
        for version in ("0.25", "0.31"):
            tool = alertmanager(version).tool
            done = _run(tool, "check-config", str(file))
            yield f"{name}: amtool {version} check-config: {done.returncode}"
        for labels in ALERTS:
            pairs = [f"{key}={value}" for key, value in labels.items()]
            done = _run(tool, "config", "routes", "test", f"--config.file={file}", *pairs)
            assert done.returncode == 0, done.stderr
            yield f"{name}: {' '.join(pairs)} -> {','.join(sorted(done.stdout.strip().split(',')))}"
        document = yaml.safe_load(file.read_text())
        yield from sorted(set(_timings(name, document["route"])))
    for rule in document["inhibit_rules"]:
        sides = [" ".join(rule[f"{side}_matchers"]) for side in ("source", "target")]
        yield f"inhibits: {sides[0]} -> {sides[1]} by {','.join(rule.get('equal', ()))}"


def _timings(name: str, route: dict[str, object], above: str = "") -> Iterator[str]:
    keys = (
        "receiver",
        "group_by",
        "group_wait",
        "group_interval",
        "repeat_interval",
        "active_time_intervals",
    )
    yield f"{name}: route " + " ".join(f"{key}={route[key]}" for key in keys if key in route)
    routes = route.get("routes", ())
    assert isinstance(routes, (list, tuple))
    for each in routes:
        yield from _timings(name, each, above)


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
