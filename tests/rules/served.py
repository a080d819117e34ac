"""Which metrics there are for rules and panels to ask for: who serves each, its type, and its labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from promql_parser import MatchOp, VectorSelector

from tests.rules.rendered import CHECKOUT

COUNTER, GAUGE = "counter", "gauge"


class Metric(NamedTuple):
    """Its type, and the labels that its series may have."""

    type: str
    labels: frozenset[str]


TARGET = frozenset({"job", "instance", "role"})
"""What Prometheus adds to whatever it scrapes."""


def _scraped(kind: str, *labels: str) -> Metric:
    return Metric(kind, TARGET.union(labels))


DCGM_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname")

FOREIGN: Mapping[str, Mapping[str, Metric]] = {
    "Prometheus, of what it scrapes and judges": {
        "up": _scraped(GAUGE),
        "ALERTS": Metric(GAUGE, TARGET | {"alertname", "alertstate", "severity", "topic", "run"}),
        "ALERTS_FOR_STATE": Metric(GAUGE, TARGET | {"alertname", "severity", "topic", "run"}),
    },
    "Prometheus": {
        "prometheus_config_last_reload_successful": _scraped(GAUGE),
        "prometheus_notifications_dropped_total": _scraped(COUNTER),
        "prometheus_notifications_errors_total": _scraped(COUNTER, "alertmanager"),
        "prometheus_rule_evaluation_failures_total": _scraped(COUNTER, "rule_group"),
        "prometheus_rule_group_iterations_missed_total": _scraped(COUNTER, "rule_group"),
    },
    "Alertmanager": {
        "alertmanager_config_last_reload_successful": _scraped(GAUGE),
        # Alertmanager names the receiver from 0.27 on
        "alertmanager_notifications_failed_total": _scraped(
            COUNTER, "integration", "reason", "receiver_name"
        ),
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


def asked(selector: VectorSelector) -> list[str]:
    """The names that a selector asks for: its own, or those that its pattern takes; the pattern if none."""
    if selector.name:
        return [selector.name]
    (wanted,) = [each for each in selector.matchers.matchers if each.name == "__name__"]
    if wanted.op == MatchOp.Equal:
        return [wanted.value]
    return [name for name in METRICS if re.fullmatch(wanted.value, name)] or [wanted.value]
