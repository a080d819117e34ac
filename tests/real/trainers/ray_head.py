"""The metrics pages of a real head node of Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator

from stepwatch.system import http_client
from tests.real import eventually
from tests.real.rl_insight import RayCluster

BRIEF = ("ray_node_", "ray_memory_manager_", "ray_object_store_", "ray_spill_manager_", "ray_resources")
"""Families that a short page keeps, as a whole."""


def targets(cluster: RayCluster) -> list[str]:
    """The addresses in Ray's own list of targets."""
    path = cluster.temp / "prom_metrics_service_discovery.json"
    eventually(path.is_file)
    listed = json.loads(path.read_text())
    return [address for group in listed for address in group["targets"]]


def pages_of(cluster: RayCluster) -> Iterator[str]:
    """The pages of those of its targets that answer."""
    for address in targets(cluster):
        page = http_client.read(f"http://{address}/metrics", timeout=30)
        if page is not None:
            yield page


def node_page() -> str:
    """The page of a head node that was just started, shortened to whole families."""
    found: list[str] = []

    def measured() -> bool:
        found[:] = [page for page in pages_of(cluster) if "ray_node_mem_total{" in page]
        return bool(found)

    with RayCluster() as cluster:
        eventually(measured)
    return "".join(_brief(found[0]))


def _brief(page: str) -> Iterator[str]:
    for line in page.splitlines(keepends=True):
        name = line.split()[2] if line.startswith("#") else line
        if name.startswith(BRIEF):
            yield line
