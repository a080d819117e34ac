"""The demo's pages beside its logs: a cluster of Ray."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from demo.pages import NODES, Pages
from tests.rules.served import FOREIGN, TARGET

SECONDS = 300
Sample = tuple[str, frozenset[str], float]


def page(address: str) -> list[Sample]:
    """Name, labels and value of each sample of a page."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return [
        (sample.name, frozenset(sample.labels), sample.value)
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def test_nodes_have_what_dashboards_and_rules_read_of_ray_and_nothing_is_wrong(tmp_path: Path) -> None:
    real = {name: each.labels - TARGET for name, each in FOREIGN["Ray"].items() if "vllm" not in name}
    pages = Pages(tmp_path, "127.0.0.1", 1, "demo/healthy")

    for tick in range(SECONDS):
        pages.tick(1)
        for address in pages.addresses[:NODES] if tick % 10 == 0 else ():
            node = page(address)
            served = {name: set(labels) for name, labels, _ in node}
            assert {name: served.get(name) for name in real} == real
            values = {name: value for name, _, value in node}
            assert values["ray_object_store_memory"] == 0
            assert values["ray_memory_manager_worker_eviction_total"] == 0
            assert values["ray_node_mem_used"] < 0.9 * values["ray_node_mem_total"]
            assert values["ray_object_store_available_memory"] > 0
