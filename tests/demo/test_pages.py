"""The demo's pages beside its logs: a cluster of Ray, a trainer's own metrics, and whose the GPUs are."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo.pages import LIST_SECONDS, NODES, RAY_LIST, Pages
from exporter.runs.discovery.address import Allowed, Allowlist
from exporter.runs.discovery.target_sources import RayFiles
from tests.rules.served import FOREIGN, TARGET

RUN = "demo/healthy"
SECONDS = 300
Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def page(address: str) -> Page:
    """The values of a page by name and labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(name="seen", scope="module")
def _seen(folder: Path) -> list[list[Page]]:
    """What each page served over five minutes."""
    pages = Pages(folder, "127.0.0.1", 1, RUN)
    found = []
    for tick in range(SECONDS):
        pages.tick(1)
        if tick % 10 == 0:
            found.append([page(address) for address in pages.addresses])
    return found


def test_the_exporter_finds_the_pages_as_those_of_ray_and_no_more_once_the_demo_ends(
    tmp_path: Path,
) -> None:
    pages = Pages(tmp_path, "127.0.0.1", 1, RUN)
    source = RayFiles([tmp_path / RAY_LIST], Allowlist(Allowed()), Path("/"))
    assert source.targets() == []
    pages.tick(0.3)
    first = (tmp_path / RAY_LIST).stat()
    assert [(each.address, each.labels["role"], each.over) for each in source.targets()] == [
        (address, "ray", False) for address in pages.addresses
    ]
    pages.tick(LIST_SECONDS)
    assert (tmp_path / RAY_LIST).stat().st_ino != first.st_ino, "Ray writes its list anew all the time"

    pages.remove()
    assert [each.over for each in source.targets()] == [True] * len(pages.addresses)


def test_nodes_have_what_dashboards_and_rules_read_of_ray_and_nothing_is_wrong(
    seen: list[list[Page]],
) -> None:
    real = {name: each.labels - TARGET for name, each in FOREIGN["Ray"].items() if "vllm" not in name}

    for moment in seen:
        for node in moment[:NODES]:
            served = {name: {label for label, _ in labels} for name, labels in node}
            assert {name: served.get(name) for name in real} == real
            values = {name: value for (name, _), value in node.items()}
            assert values["ray_object_store_memory"] == 0
            assert values["ray_memory_manager_worker_eviction_total"] == 0
            assert values["ray_node_mem_used"] < 0.9 * values["ray_node_mem_total"]
            assert values["ray_object_store_available_memory"] > 0
