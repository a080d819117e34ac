"""What config.yaml names, as containers see it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml

from stepwatch.config import Config
from stepwatch.config.deployment import CONTAINER_PORTS, InContainers, OnThisMachine
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import CHECKOUT


@pytest.fixture(name="folder")
def _folder(tmp_path):
    folder = tmp_path / "secrets"
    folder.mkdir()
    return folder


@pytest.fixture(name="containers")
def _containers(folder):
    return InContainers({folder: "/etc/stepwatch/secrets"})


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("127.0.0.1:8000", "host.docker.internal:8000"),
        ("localhost:8000", "host.docker.internal:8000"),
        ("[::1]:8000", "host.docker.internal:8000"),
        ("127.0.0.53:53", "host.docker.internal:53"),
        ("10.0.0.7:8000", "10.0.0.7:8000"),
        ("localhost.example:80", "localhost.example:80"),
    ],
)
def test_this_machine_is_reached_by_its_name_in_containers(containers, written, seen):
    assert containers.target(written) == seen
    assert containers.url(f"https://{written}/a?b=127.0.0.1:1") == f"https://{seen}/a?b=127.0.0.1:1"


def test_a_file_elsewhere_is_refused_with_the_fix(containers, folder):
    with pytest.raises(Refused, match=rf"/home/me/token: no container sees .* below {folder}\. Fix: move it"):
        containers.file(folder.__class__("/home/me/token"))


def test_what_lies_beside_rays_folder_is_seen_by_the_run_exporter(containers, folder):
    ray = folder.__class__("/data/ray")
    seeing = replace(containers, above=ray.parent)

    assert seeing.left_file(ray / "session_latest/x.yml") == "/host/data/ray/session_latest/x.yml"
    assert seeing.left_file(ray.parent / "verl/*.yml") == "/host/data/verl/*.yml"
    assert seeing.left_file(folder / "verl.yml") == "/etc/stepwatch/secrets/verl.yml"
    for place in (seeing, containers):
        with pytest.raises(Refused, match="no container sees"):
            place.left_file(folder.__class__("/srv/verl.yml"))
    assert containers.left_file(folder.__class__("/tmp/ray/x")) == "/host/tmp/ray/x"
    assert OnThisMachine(Config()).left_file(ray) == "/data/ray"


def test_the_ports_in_containers_are_those_that_compose_publishes():
    services = yaml.safe_load((CHECKOUT / "compose.yaml").read_text())["services"]
    published = {
        name: {int(port.rpartition(":")[2]) for port in service["ports"]}
        for name, service in services.items()
        if "ports" in service
    }
    assert published == {
        name: {port} for name, port in CONTAINER_PORTS.items() if name not in ("receiver", "node")
    }
    (port,) = re.findall(r"ports: !override\n +- \S+:(\d+)\n", (CHECKOUT / "compose.hub.yaml").read_text())
    assert int(port) == CONTAINER_PORTS["receiver"]
