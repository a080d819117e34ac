"""A stack of plain processes scrapes containers of this machine, on a real Docker Engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.system.environment import CHECKOUT
from tests.container_targets.conftest import Start
from tests.native.installation import MAINLY_NEWEST, Installation, made
from tests.real import eventually, query
from tests.real.docker import Docker

pytestmark = pytest.mark.e2e


@pytest.fixture(name="installation", params=MAINLY_NEWEST)
def _installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    installation = made(tmp_path, request.param)
    installation.configure("intervals: {scrape: 1s}\n")
    yield installation
    installation.run("down")


def test_containers_are_scraped_at_their_own_address_or_a_port_of_this_machine(
    installation: Installation, docker: Docker, start: Start, port: int
) -> None:
    start("bridged", scrape="9100")
    start("published", f"--publish=127.0.0.1:{port}:9100", scrape="9100", job="vllm", role="rollout")
    start("alone", "--network=none", scrape="9100")
    assert installation.up().returncode == 0

    done = _discover(installation, docker)

    assert done.returncode == 1
    assert done.stderr == (
        "Container alone: it has no address that is reachable from this machine, and port 9100 is not "
        "published. Expected: a route from Prometheus to port 9100. "
        "Fix: start it with -p 127.0.0.1:9100:9100.\n"
    )
    assert f"published: vllm, at 127.0.0.1:{port}/metrics, role rollout" in done.stdout
    eventually(lambda: _scraped(installation) == {("docker", "bridged:9100"), ("vllm", "published:9100")})

    file = installation.state / "discovered/docker.json"
    before = file.read_bytes()
    assert installation.up().returncode == 0
    assert "applies it" not in installation.run("status").stdout
    assert file.read_bytes() == before
    assert len(json.loads(before)) == 2


def _discover(installation: Installation, docker: Docker) -> subprocess.CompletedProcess[str]:
    environment = {**docker.env, "STEPWATCH_STATE": str(installation.state)}
    command = [sys.executable, CHECKOUT / "generate.py", "--discover", "docker"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _scraped(installation: Installation) -> set[tuple[str, str]]:
    found = query(installation.url("prometheus"), 'up{container!=""} == 1')
    return {(each["metric"]["job"], each["metric"]["instance"]) for each in found}
