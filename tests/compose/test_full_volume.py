"""A full volume in containers: the run exporter tells of it, and everything goes on when there is room."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.compose.checkout import Checkout, until
from tests.compose.conftest import Sink
from tests.real.docker import Docker
from tests.real.waiting import in_time

pytestmark = [pytest.mark.e2e, pytest.mark.world]

SMALL = ("--driver=local", "--opt=type=tmpfs", "--opt=device=tmpfs", "--opt=o=size=64m,uid=65534,gid=65534")
"""A volume of 64 MiB that belongs to the user of Prometheus."""
VOLUME = "prometheus-data"


@pytest.fixture(name="stack", scope="module")
def _stack(docker: Docker, checkout: Checkout) -> Iterator[Checkout]:
    labels = {"project": "stepwatch", "volume": VOLUME}
    ours = [f"--label=com.docker.compose.{name}={value}" for name, value in labels.items()]
    docker.docker("volume", "create", *SMALL, *ours, f"stepwatch_{VOLUME}")
    with checkout.running():
        yield checkout


@pytest.fixture(name="sink", scope="module")
def _sink(docker: Docker, stack: Checkout) -> Iterator[Sink]:
    sink = Sink(docker, stack)
    yield sink
    sink.close()


def test_a_full_volume_is_reported_within_a_minute_and_its_end_too(stack: Checkout, sink: Sink) -> None:
    until(lambda: stack.query("stepwatch_state_filesystem_free_bytes"), "the exporter is scraped")
    full = time.time()
    _inside(
        stack, "prometheus", "dd if=/dev/zero of=/prometheus/ballast bs=4096; test -s /prometheus/ballast"
    )
    until(lambda: ("AlertingBroken", "") in sink.alerts("firing"), "AlertingBroken arrives")
    assert in_time(time.time() - full, 60)
    done = stack.stepwatch("status")
    assert done.returncode == 1
    assert "State disk is full. /data/prometheus: " in done.stdout

    _inside(stack, "prometheus", "rm /prometheus/ballast")
    until(lambda: ("AlertingBroken", "") in sink.alerts("resolved"), "the end of AlertingBroken arrives")
    until(lambda: stack.stepwatch("status").returncode == 0, "all is well")
    assert {name for name, _ in sink.alerts("firing")} == {"AlertingBroken"}


def test_the_exporter_sees_each_volume_and_writes_only_to_its_own(stack: Checkout) -> None:
    listed = _inside(
        stack, "exporter", "stat -c '%u %n' /data/prometheus /state; touch /data/prometheus/x || :"
    )

    assert listed.split() == ["65534", "/data/prometheus", "10001", "/state"]
    assert "x" not in _inside(stack, "prometheus", "ls /prometheus").split()
    assert not stack.page("exporter", "/api/v1/findings")["findings"]


def _inside(stack: Checkout, service: str, script: str) -> str:
    """What a script prints in a service's container."""
    return stack.compose("exec", "-T", service, "sh", "-c", script)
