"""Only IP addresses of allowed networks become targets."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.discovery.address import AddressError, Allowed


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7:41233", "10.0.0.7:41233"),
        ("172.31.255.255:1", "172.31.255.255:1"),
        ("192.168.1.1:65535", "192.168.1.1:65535"),
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("localhost:8000", "127.0.0.1:8000"),
        ("[::1]:8000", "[::1]:8000"),
        ("[fd00:0:0::7]:8000", "[fd00::7]:8000"),
        ("[::ffff:10.0.0.7]:8000", "10.0.0.7:8000"),
        ("10.0.0.7:08000", "10.0.0.7:8000"),
    ],
)
def test_private_networks_and_loopback_are_allowed_and_spelt_in_one_way(text, address):
    assert Allowed().checked(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "8.8.8.8:80",
        "172.32.0.1:80",
        "169.254.169.254:80",
        "100.64.0.1:80",
        "[2001:db8::1]:80",
        "[fe80::1]:80",
        "[::ffff:8.8.8.8]:80",
        "[fd00:ec2::254]:80",
        "[fd00:ec2:0:0::fe]:80",
        "[fd20:ce::254]:80",
        "[fd00:c1::a9fe:a9fe]:80",
    ],
)
def test_other_networks_are_refused_with_the_fix(text):
    with pytest.raises(AddressError, match=r"none of the allowed networks\. Fix: .*discovery\.allow"):
        Allowed().checked(text)


def test_a_network_of_ones_own_takes_the_place_of_the_usual_ones():
    allowed = Allowed(["100.64.0.0/10", "8.8.8.8"])

    assert allowed.checked("100.127.255.255:80") == "100.127.255.255:80"
    assert allowed.checked("8.8.8.8:80") == "8.8.8.8:80"
    with pytest.raises(AddressError):
        allowed.checked("10.0.0.7:80")


def test_a_metadata_address_of_a_cloud_is_allowed_only_by_a_network_within_its_own():
    with pytest.raises(AddressError):
        Allowed(["fd00::/8", "::/0"]).checked("[fd00:ec2::254]:80")

    assert Allowed(["fd00:ec2::254"]).checked("[fd00:ec2::254]:80") == "[fd00:ec2::254]:80"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.7",
        "10.0.0.7:",
        "10.0.0.7:0",
        "10.0.0.7:65536",
        "10.0.0.7:٣",
        "10.0.0.7:80\n",
        " 10.0.0.7:80",
        "http://10.0.0.7:80",
        "10.0.0.7:80/metrics",
        "user@10.0.0.7:80",
        "10.0.0:80",
        "010.0.0.1:80",
        "0x0a000007:80",
        "node-1:80",
        "LOCALHOST:80",
        "::1:80",
        "[::1%lo]:80",
        "[::1]",
        "0.0.0.0:80",
        "[::]:80",
        "224.0.0.1:80",
        "1" * 100_000,
    ],
)
def test_what_is_not_an_address_with_a_port_is_refused_in_few_words(text):
    with pytest.raises(AddressError, match="is not an IP address with a port") as caught:
        Allowed(["0.0.0.0/0", "::/0"]).checked(text)

    assert len(str(caught.value)) < 200


@given(st.one_of(st.text(), st.ip_addresses().map(lambda host: f"[{host}]:80")))
def test_whatever_passes_is_an_address_of_an_allowed_network(text):
    try:
        host, _, port = Allowed().checked(text).rpartition(":")
    except AddressError:
        return

    found = ipaddress.ip_address(host.strip("[]"))
    assert found.is_loopback or found.is_private
    assert 0 < int(port) < 65536
