"""A real head node of Ray: its list of targets is followed, and its pages are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.real import eventually
from tests.real.rl_insight import RayCluster
from tests.real.trainers.ray_head import pages_of, targets
from tests.world.watching import Watching

pytestmark = pytest.mark.world

PORTS = 3
"""One node has three: its own, its dashboard's and its autoscaler's."""


def served(exporter: Watching) -> set[str]:
    """The addresses that Prometheus is given."""
    groups = json.loads(http_client.read(f"{exporter.url}/sd/rollout") or "[]")
    return {address for group in groups for address in group["targets"]}


def test_the_targets_of_a_head_node_are_given_to_prometheus_while_it_is_up(tmp_path: Path) -> None:
    with RayCluster() as cluster:
        eventually(lambda: len(targets(cluster)) == PORTS)
        with Watching(tmp_path, "--discovery-ray", cluster.temp) as exporter:
            eventually(lambda: served(exporter) == set(targets(cluster)))
            found = "".join(pages_of(cluster))

    for family in ("ray_node_mem_total", "ray_node_disk_free", "ray_object_store_memory"):
        assert f"# TYPE {family} gauge" in found
