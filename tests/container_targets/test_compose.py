"""A stack of containers scrapes other containers that ask for it, on a real Docker Engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.checkout import Checkout, until
from tests.container_targets.conftest import Start
from tests.real import free_port
from tests.real.docker import Docker

pytestmark = [pytest.mark.e2e, pytest.mark.world]

NETWORK = "--network=stepwatch_default"
BRIDGE = "10.213.0.1"
"""The engine's own address for the machine, which `host.docker.internal` leads to."""


def discover(checkout: Checkout) -> subprocess.CompletedProcess[str]:
    return checkout.run(sys.executable, "generate.py", "--discover", "docker")


def file(checkout: Checkout) -> Path:
    return checkout.folder / "targets/discovered/docker.json"


def scraped(checkout: Checkout) -> dict[str, dict[str, str]]:
    """The labels of each container that answers Prometheus, by its name."""
    found = [each["metric"] for each in checkout.query('up{container!=""} == 1')]
    return {labels.pop("container"): labels for labels in found}


@pytest.fixture(scope="module", name="down")
def _down(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose stack was never up."""
    settings = {"intervals": {"scrape": "1s"}, "scrape": [{"job": "mine", "files": ["targets/*.json"]}]}
    checkout = Checkout(tmp_path_factory.mktemp("checkout") / "stepwatch", docker, settings)
    done = checkout.run(sys.executable, "generate.py")
    assert done.returncode == 0, done.stderr
    return checkout


@pytest.fixture(scope="module", name="checkout")
def _checkout(down: Checkout) -> Iterator[Checkout]:
    """Its Prometheus runs."""
    down.compose("up", "--detach", "--wait", "prometheus")
    yield down
    down.compose("down", "--volumes", "--timeout=5")


def test_without_a_stack_nothing_is_known_of_what_prometheus_reaches(down: Checkout) -> None:
    done = discover(down)

    assert done.returncode == 2
    assert f"No Prometheus of {down.folder} runs" in done.stderr
    assert "Fix: run `make up`, then this command again. Nothing was changed." in done.stderr
    assert not file(down).exists()


def test_without_a_container_that_asks_the_list_is_empty_and_stays_a_list(checkout: Checkout) -> None:
    done = discover(checkout)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(file(checkout).read_text()) == []


def test_a_container_in_a_network_of_prometheus_is_scraped_as_its_labels_say(
    checkout: Checkout, start: Start
) -> None:
    start("vllm-0", NETWORK, scrape="9100", path="/numbers", page="/numbers", job="vllm", role="rollout")
    start("plain", NETWORK, scrape="9100")
    start("unasked", NETWORK)

    done = discover(checkout)

    assert (done.returncode, done.stderr) == (0, "")
    assert "vllm-0: vllm, at 10.214." in done.stdout
    assert f"2 targets in {file(checkout)}." in done.stdout
    until(lambda: len(scraped(checkout)) == 2, "both are scraped")
    assert scraped(checkout) == {
        "vllm-0": {"__name__": "up", "job": "vllm", "instance": "vllm-0:9100", "role": "rollout"},
        "plain": {"__name__": "up", "job": "docker", "instance": "plain:9100", "role": "other"},
    }
    pools = [
        each["scrapePool"] for each in checkout.page("prometheus", "/api/v1/targets")["data"]["activeTargets"]
    ]
    assert "mine" not in pools, "a pattern of the user's own finds the file as well"


def test_one_that_is_out_of_reach_is_reported_by_name_and_its_fix_works(
    checkout: Checkout, docker: Docker, start: Start, port: int
) -> None:
    start("apart", scrape="9100")
    start("closed", f"--publish=127.0.0.1:{port}:9100", scrape="9100")
    start("alone", "--network=none", scrape="9100")
    start("near", NETWORK, scrape="9100")

    done = discover(checkout)

    assert done.returncode == 1
    reported = dict(line.removeprefix("Container ").split(": ", 1) for line in done.stderr.splitlines())
    assert reported.keys() == {"apart", "closed", "alone"}
    assert (
        "in none of the networks of Prometheus (stepwatch_default), and port 9100 is not" in reported["apart"]
    )
    assert "port 9100 is published for this machine only" in reported["closed"]
    until(lambda: scraped(checkout).keys() == {"near"}, "the others go on")

    fix = re.search("`docker (network connect [^`]+)`", reported["closed"])
    assert fix
    docker.docker(*fix[1].split())
    discover(checkout)
    until(lambda: scraped(checkout).keys() == {"near", "closed"}, "the fix works")


def test_ports_of_the_machine_and_networks_of_others_lead_to_a_container_too(
    checkout: Checkout, start: Start, port: int
) -> None:
    start("published", f"--publish={BRIDGE}:{port}:9100", scrape="9100")
    own = free_port()
    start("on-host", "--network=host", listen=f"{BRIDGE}:{own}", scrape=str(own))
    start("main", NETWORK)
    start("beside", "--network=container:main", listen=":9200", scrape="9200")

    done = discover(checkout)

    assert (done.returncode, done.stderr) == (0, "")
    assert f"published: docker, at {BRIDGE}:{port}/metrics" in done.stdout
    assert f"on-host: docker, at host.docker.internal:{own}/metrics" in done.stdout
    until(lambda: scraped(checkout).keys() == {"published", "on-host", "beside"}, "all three are scraped")


def test_each_wrong_label_is_reported_by_container_and_the_others_go_on(
    checkout: Checkout, start: Start
) -> None:
    start("one", NETWORK, scrape="http")
    start("two", NETWORK, scrape="70000", path="metrics", job="runs")
    start("three", NETWORK, scrape="9100", paht="/metrics")
    start("right", NETWORK, scrape="9100")

    done = discover(checkout)

    assert done.returncode == 1
    assert [target["labels"]["container"] for target in json.loads(file(checkout).read_text())] == ["right"]
    reported = done.stderr.splitlines()
    assert [": ".join(line.split(": ")[:2]) for line in reported] == [
        "Container one: label stepwatch.scrape",
        "Container three: label stepwatch.paht",
        "Container two: label stepwatch.scrape",
        "Container two: label stepwatch.path",
        "Container two: label stepwatch.job",
    ]
    assert '"http" is not a port. Expected: a port of the container, from 1 to 65535. Fix: ' in reported[0]
    assert "did you mean path?" in reported[1]
    assert '"runs" is a job of Stepwatch itself.' in reported[4]


def test_a_stopped_container_leaves_and_generating_leaves_the_file_alone(
    checkout: Checkout, docker: Docker, start: Start
) -> None:
    start("stays", NETWORK, scrape="9100")
    start("goes", NETWORK, scrape="9100")
    discover(checkout)
    until(lambda: scraped(checkout).keys() == {"stays", "goes"}, "both are scraped")

    docker.docker("stop", "--time=0", "goes")
    discover(checkout)
    until(lambda: scraped(checkout).keys() == {"stays"}, "the stopped one has left")

    before = file(checkout).read_bytes()
    assert checkout.run(sys.executable, "generate.py").returncode == 0
    assert checkout.run(sys.executable, "generate.py", "--check").stdout == ""
    assert file(checkout).read_bytes() == before


def test_a_folder_that_is_closed_to_containers_is_refused_before_anything_is_written(
    checkout: Checkout,
) -> None:
    discover(checkout)
    before, folder = file(checkout).stat(), file(checkout).parent
    folder.chmod(0o700)
    try:
        done = discover(checkout)
    finally:
        folder.chmod(0o755)

    assert done.returncode == 2
    assert f"{folder}: mode 700 does not let the containers search it" in done.stderr
    assert file(checkout).stat() == before
