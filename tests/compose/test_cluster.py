"""A hub in containers with an agent of processes, and an agent in containers with a hub of processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose.checkout import Checkout, until
from tests.native.installation import Installation, made
from tests.own_logs import SICK
from tests.real import query
from tests.real.docker import BRIDGE, Docker
from tests.real.mailbox import Certificate

pytestmark = [pytest.mark.e2e, pytest.mark.world]

NODE = "node-7"
LOOPBACK = "127.0.0.1"
CERTIFICATE = {"cert_file": "secrets/certificate.pem", "key_file": "secrets/key.pem"}


@pytest.fixture(name="checkout")
def _checkout(docker: Docker, tmp_path: Path) -> Iterator[Checkout]:
    checkout = Checkout(tmp_path / "stepwatch", docker)
    (checkout.folder / "secrets").mkdir(exist_ok=True)
    yield checkout
    checkout.run("docker", "compose", "down", "--remove-orphans", "--volumes", "--timeout=5")


@pytest.fixture(name="native")
def _native(tmp_path: Path) -> Iterator[Installation]:
    native = made(tmp_path, "newest")
    native.environment["STEPWATCH_SECRETS"] = str(native.folder / "secrets")
    (native.folder / "secrets").mkdir()
    yield native
    native.run("down")


def certify(folder: Path, address: str) -> None:
    """A certificate of the hub's, whose key containers may read."""
    Certificate.made(folder, address).key.chmod(0o644)


def agent_of(hub: str, port: int) -> dict[str, Any]:
    """The settings of an agent, but for its ports."""
    keys = {"password_file": "secrets/password", "ca_file": "secrets/certificate.pem"}
    return {"role": "agent", "node": NODE, "hub": {"url": f"https://{hub}:{port}", **keys}}


def test_a_hub_in_containers_takes_what_an_agent_of_processes_sends(
    checkout: Checkout, native: Installation
) -> None:
    secrets, theirs = checkout.folder / "secrets", native.folder / "secrets"
    certify(secrets, LOOPBACK)
    checkout.ports["agents"] = native.ports["agents"]
    checkout.write({"role": "hub", "agents": {"listen": LOOPBACK, **CERTIFICATE}})
    done = checkout.stepwatch("up")
    assert done.returncode == 0, done.stdout + done.stderr
    made = checkout.stepwatch("agent", NODE)
    assert made.returncode == 0, made.stderr

    (theirs / "password").write_text(made.stdout)
    (theirs / "certificate.pem").write_bytes((secrets / "certificate.pem").read_bytes())
    settings = agent_of(LOOPBACK, checkout.ports["agents"])
    native.configure(yaml.safe_dump({**settings, "discovery": {"ray": None}}))
    done = native.up()

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"The hub https://{LOOPBACK}:{checkout.ports['agents']} accepts its samples (last " in done.stdout
    until(lambda: checkout.query(f'up{{node="{NODE}", job="runs"}} == 1'), "its run exporter is known")
    assert checkout.stepwatch("status").returncode == 0
    assert NODE in checkout.stepwatch("agent").stderr


def test_an_agent_in_containers_sends_to_a_hub_of_processes(checkout: Checkout, native: Installation) -> None:
    secrets, theirs = checkout.folder / "secrets", native.folder / "secrets"
    certify(theirs, BRIDGE)
    settings = {"role": "hub", "agents": {"listen": BRIDGE, **CERTIFICATE}}
    native.configure(yaml.safe_dump({**settings, "discovery": {"ray": None}}))
    done = native.up()
    assert done.returncode == 0, done.stdout + done.stderr
    made = native.run("agent", NODE, "--config", str(native.config))
    assert made.returncode == 0, made.stderr

    (secrets / "password").write_text(made.stdout)
    (secrets / "certificate.pem").write_bytes((theirs / "certificate.pem").read_bytes())
    (checkout.folder / "runs").mkdir(exist_ok=True)
    (checkout.folder / "runs" / "sick.log").write_bytes(SICK.read_bytes())
    checkout.write(agent_of(BRIDGE, native.ports["agents"]))
    done = checkout.stepwatch("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.containers().keys() == {"exporter", "gpu", "node", "prometheus"}
    status = checkout.stepwatch("status")
    assert status.returncode == 0
    for shown in (done.stdout, status.stdout):
        assert f"The hub https://{BRIDGE}:{native.ports['agents']} accepts its samples (last " in shown

    url = native.url("prometheus")
    until(lambda: query(url, f'rl_step{{run="sick", node="{NODE}"}}'), "its run is known")
    until(lambda: query(url, f'up{{node="{NODE}", job="gpu"}} == 1'), "its GPU exporter is known")
