"""The file of targets, from any containers."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwatch.deploy.container_targets import Container, FromMachine, containers, found

ANYWHERE = FromMachine({"bridge"})


def container(name: str, **labels: str) -> Container:
    ours = {f"stepwatch.{key}": text for key, text in labels.items()}
    return Container(
        name, "running", ours, on_host=False, addresses={"bridge": "172.17.0.2"}, ports=(), mounts={}
    )


# The tables of all characters are made at the first one, which takes a second.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["scrape", "path", "job", "role", "scheme"]),
        st.one_of(st.text(), st.integers().map(str), st.sampled_from(["80", "/a", "rollout", "٣", "080"])),
    )
)
def test_whatever_its_labels_say_a_container_is_a_target_or_reported_or_did_not_ask(
    labels: dict[str, str],
) -> None:
    result = found([container("web", **labels), container("other", scrape="80")], ANYWHERE)

    names = [target.container for target in result.targets]
    assert "other" in names
    assert ("web" in names) + bool(result.faults) == ("scrape" in labels)
    assert all(fault.startswith("Container web: label stepwatch.") for fault in result.faults)
    assert len(json.loads(result.file)) == len(names)


def test_a_container_is_called_by_its_own_name_and_not_by_that_of_a_link() -> None:
    (linked,), (nameless,) = containers([_answer(Names=["/web/db", "/db"])]), containers([_answer(Names=[])])
    assert (linked.name, nameless.name) == ("db", "0" * 12)


def test_one_in_the_network_of_a_container_that_has_ended_has_no_address() -> None:
    (alone,) = containers([_answer(HostConfig={"NetworkMode": "container:gone"})])
    assert (alone.addresses, alone.on_host) == ({}, False)


def test_udp_ports_and_those_that_are_only_exposed_are_not_published() -> None:
    ports = [
        {"PrivatePort": 80, "Type": "tcp"},
        {"PrivatePort": 81, "Type": "udp", "PublicPort": 81, "IP": "0.0.0.0"},
        {"PrivatePort": 82, "Type": "tcp", "PublicPort": 8082, "IP": "::"},
        {"PrivatePort": 82, "Type": "tcp", "PublicPort": 8082, "IP": "0.0.0.0"},
    ]
    (web,) = containers([_answer(Ports=ports)])
    assert [(port.inside, port.host) for port in web.ports] == [(82, "0.0.0.0"), (82, "::")]


def _answer(**parts: Any) -> dict[str, Any]:
    """What the Engine's API says of a container that has nothing."""
    return {
        "Id": "0" * 64,
        "Names": ["/web"],
        "State": "running",
        "Labels": None,
        "HostConfig": {"NetworkMode": "default"},
        "NetworkSettings": {"Networks": None},
        "Ports": None,
        "Mounts": None,
        **parts,
    }
