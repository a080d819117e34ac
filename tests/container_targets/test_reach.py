"""Addresses as seen from a Prometheus in a container, and from one that is a process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwatch.deploy.container_targets import Container, FromContainer, FromMachine, Published
from stepwatch.schema.errors import Refused

BOXED = FromContainer({"stack", "other"})
PLAIN = FromMachine({"bridge"})
ROOTLESS = FromMachine(frozenset())

BARE = Container("web", "running", {}, on_host=False, addresses={}, ports=(), mounts={})


def at(**addresses: str) -> Container:
    return replace(BARE, addresses=addresses)


def published(*hosts: str) -> Container:
    return replace(
        BARE, addresses={"bridge": "172.17.0.2"}, ports=tuple(Published(80, host, 8080) for host in hosts)
    )


@pytest.mark.parametrize(
    ("container", "seen"),
    [
        (at(stack="172.18.0.3"), "172.18.0.3:80"),
        (at(bridge="172.17.0.2", stack="[fd00::3]"), "[fd00::3]:80"),
        (replace(BARE, on_host=True), "host.docker.internal:80"),
        (published("0.0.0.0", "::"), "host.docker.internal:8080"),
        (published("127.0.0.1", "192.168.1.5"), "192.168.1.5:8080"),
        (published("fd12::5"), "[fd12::5]:8080"),
        (replace(published("0.0.0.0"), addresses={"stack": "172.18.0.3"}), "172.18.0.3:80"),
    ],
)
def test_from_a_container_by_a_shared_network_else_by_a_port_that_others_see(
    container: Container, seen: str
) -> None:
    assert BOXED.address(container, 80) == seen


@pytest.mark.parametrize(
    "container", [BARE, at(bridge="172.17.0.2"), *map(published, ("127.0.0.1", "127.0.0.53", "::1", "::"))]
)
def test_from_a_container_nothing_else_leads_to_another(container: Container) -> None:
    with pytest.raises(
        Refused, match=r"none of the networks of Prometheus \(other, stack\).*connect other web`, or start"
    ):
        BOXED.address(container, 80)


@pytest.mark.parametrize(
    ("container", "seen"),
    [
        (at(bridge="172.17.0.2"), "172.17.0.2:80"),
        (replace(BARE, on_host=True), "127.0.0.1:80"),
        (published("0.0.0.0", "::"), "127.0.0.1:8080"),
        (published("127.0.0.1"), "127.0.0.1:8080"),
        (published("::"), "[::1]:8080"),
        (published("192.168.1.5"), "192.168.1.5:8080"),
    ],
)
def test_from_this_machine_by_a_published_port_else_by_a_bridge(container: Container, seen: str) -> None:
    assert PLAIN.address(container, 80) == seen


def test_addresses_in_networks_that_are_no_bridges_of_this_machine_lead_nowhere() -> None:
    for reach, container in ((PLAIN, at(overlay="10.0.0.3")), (ROOTLESS, at(bridge="172.17.0.2"))):
        with pytest.raises(Refused, match=r"port 80 is not published.*start it with -p 127\.0\.0\.1:80:80"):
            reach.address(container, 80)
    assert ROOTLESS.address(published("127.0.0.1"), 80) == "127.0.0.1:8080"


def test_of_one_that_restarts_again_and_again_that_is_said() -> None:
    with pytest.raises(Refused, match=r"is restarting and has no address.*docker logs web"):
        BOXED.address(replace(BARE, state="restarting"), 80)
