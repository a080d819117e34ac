"""Samples that arrive hours late are kept, and alert no one; those of now do, beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hub import Hub, shifted
from tests.native.installation import MAINLY_NEWEST, VERSIONS
from tests.real.remote_write import send
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

LATE = (2, 5)
"""Hours: more than the one that a Prometheus takes without a window for it."""
COUNT = 120


@pytest.fixture(name="hub", params=MAINLY_NEWEST)
def _hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hub]:
    with Hub(VERSIONS[request.param][0], tmp_path / "hub", "alerts: {GPULost: {for: 2s}}\n") as hub:
        yield hub


def lost_gpu(node: str) -> dict[str, str]:
    """The labels of a GPU that the driver has lost while its value is 0."""
    return {
        "__name__": "gpu_up",
        "cluster": "night",
        "node": node,
        "job": "gpu",
        "role": "gpu",
        "instance": f"{node}:9411",
        "gpu": "3",
        "uuid": f"GPU-{node}",
    }


def test_samples_of_hours_ago_are_all_kept_and_only_those_of_now_alert(hub: Hub) -> None:
    write = f"{hub.url}/api/v1/write"
    # The hub has samples of now already, of another node and of these.
    for hours in LATE:
        send(write, [({**lost_gpu(f"late-{hours}"), "__name__": "gpu_power_watts"}, [(time.time(), 1.0)])])
    for hours in LATE:
        samples = shifted(hours, COUNT)
        # As a sender that catches up: in several requests, the last of which comes twice.
        for part in (samples[:50], samples[50:], samples[50:]):
            send(write, [(lost_gpu(f"late-{hours}"), part)])

    def fired() -> bool:
        send(write, [(lost_gpu("present"), [(time.time(), 0.0)])])
        return bool(hub.firing(alertname="GPULost"))

    eventually(fired, pause=0.5)
    assert {each["instance"] for each in hub.firing(alertname="GPULost")} == {"present:9411"}
    for hours in LATE:
        node = f"late-{hours}"
        assert hub.value(f'count_over_time(gpu_up{{node="{node}"}}[{hours + 1}h])') == COUNT
        assert not hub.labels(f'ALERTS{{instance="{node}:9411"}}')
