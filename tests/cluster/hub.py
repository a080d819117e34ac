"""A hub's Prometheus: the hub's own settings and rules, without the receiver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import render_all
from stepwatch.system.environment import CHECKOUT
from tests.real import PrometheusServer, free_port, query

QUICK = "intervals: {runs: 1s, scrape: 1s, rules: 1s, stack_rules: 1s}\ngpus: {interval: 500ms}\n"


class Hub(PrometheusServer):
    """It takes remote write on loopback; its own targets do not exist."""

    def __init__(self, version: str, folder: Path, more: str = "") -> None:
        folder.mkdir()
        ports = {name: free_port() for name in ("exporter", "gpu", "alertmanager")}
        (folder / "config.yaml").write_text(f"role: hub\nports: {dict(ports)}\n{QUICK}{more}")
        for path, content in render_all(load(folder / "config.yaml"), CHECKOUT, OnThisMachine).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        options = ("--web.enable-remote-write-receiver",)
        super().__init__(version, folder / "prometheus/generated", port=free_port(), options=options)

    def value(self, promql: str) -> float:
        """The only value of a query; NaN without one."""
        found = query(self.url, promql)
        return float(found[0]["value"][1]) if found else float("nan")

    def labels(self, promql: str) -> list[Mapping[str, str]]:
        """The labels of each series of a query."""
        return [each["metric"] for each in query(self.url, promql)]

    def firing(self, **labels: str) -> list[Mapping[str, str]]:
        """The labels of each alert that fires and has these."""
        matchers = "".join(f',{name}="{value}"' for name, value in labels.items())
        return self.labels(f'ALERTS{{alertstate="firing"{matchers}}}')


def shifted(hours: float, count: int, *, every: float = 1) -> list[tuple[float, float]]:
    """Samples of value 0 that end so many hours ago."""
    end = time.time() - hours * 3600
    return [(end - every * (count - index), 0.0) for index in range(count)]
