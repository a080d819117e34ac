"""compose.yaml as data: it is valid in every combination, and hardened throughout."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter import __version__
from stepwatch.config import cluster, load
from stepwatch.render.variables import of_config, of_machine
from stepwatch.system.environment import CHECKOUT
from tests.real.docker import Client

pytestmark = pytest.mark.e2e

ACCESS = {"compose.yaml": [], "compose.gpu.yaml": ["nvidia"], "compose.gpu.cdi.yaml": ["cdi"]}
"""The driver by which each file gives access to GPUs."""
OF_AGENT = {
    "gpu": ("deploy", "environment"),
    "prometheus": ("entrypoint", "command", "mem_limit"),
}
"""What of an agent's services may differ from the others', or is of the file for GPUs."""
PROFILES = ([], ["--profile=demo"], ["--profile=demo", "--profile=tools"])


@pytest.fixture(scope="module", name="docker")
def _docker() -> Iterator[Client]:
    """No engine: Compose reads its file without one."""
    with Client() as client:
        yield client


@pytest.fixture(scope="module", name="rendered")
def _rendered(checkout) -> dict[str, Any]:
    return json.loads(checkout.compose("--profile=demo", "--profile=tools", "config", "--format=json"))


@pytest.mark.parametrize(("file", "profiles"), list(itertools.product(ACCESS, PROFILES)))
def test_every_combination_of_files_and_profiles_is_valid(checkout, file, profiles):
    files = [f"--file={name}" for name in dict.fromkeys(["compose.yaml", file])]
    services = json.loads(checkout.compose(*files, *profiles, "config", "--format=json"))["services"]

    assert {"prometheus", "alertmanager", "grafana", "exporter", "gpu", "node"} <= services.keys()
    assert ("demo" in services) == ("--profile=demo" in profiles)
    devices = services["gpu"].get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices")
    assert [device["driver"] for device in devices or []] == ACCESS[file]


def _services(checkout, *files: str) -> dict[str, Any]:
    words = (f"--file={name}" for name in files)
    return json.loads(checkout.compose(*words, "config", "--format=json"))["services"]


@pytest.mark.parametrize("file", ACCESS)
def test_an_agent_is_what_reads_and_sends(checkout, rendered, file):
    access = () if file == "compose.yaml" else (file,)
    services = _services(checkout, "compose.agent.yaml", *access)

    assert services.keys() == {"exporter", "gpu", "node", "prometheus", "init"}
    for name, service in services.items():
        shared = {key: value for key, value in service.items() if key not in OF_AGENT.get(name, ())}
        assert shared == {key: value for key, value in rendered["services"][name].items() if key in shared}
    command = services["prometheus"]["command"]
    assert "--agent" in command
    assert f"--storage.agent.retention.max-time={cluster.BUFFER}" in command
    assert not [word for word in command if word.startswith(("--storage.tsdb", "--rules"))]
    published = [port["published"] for service in services.values() for port in service.get("ports", [])]
    assert published == ["9410", "9411", "9090"]


def test_a_hub_publishes_the_port_for_agents_on_its_own_address(checkout, rendered, monkeypatch, tmp_path):
    (tmp_path / "config.yaml").write_text("role: hub\nports: {agents: 9499}\n")
    for name, value in of_config(load(tmp_path / "config.yaml")).items():
        monkeypatch.setitem(checkout.docker.env, name, value)
    services = _services(checkout, "compose.yaml", "compose.hub.yaml")

    receiver = services["receiver"]
    ports = {(port["host_ip"], port["published"], port["target"]) for port in receiver["ports"]}
    assert ports == {("127.0.0.1", "9499", 9415)}
    assert "/etc/stepwatch/secrets" in [each["target"] for each in receiver["volumes"]]
    assert receiver["image"] == services["prometheus"]["image"]
    assert f"--storage.agent.retention.max-time={cluster.BUFFER}" in receiver["command"]
    taking = "--web.enable-remote-write-receiver"
    assert taking in services["prometheus"]["command"]
    assert taking not in rendered["services"]["prometheus"]["command"]
    assert "receiver" not in rendered["services"]


def test_the_hosts_processes_are_seen_only_where_they_are_asked_for_and_never_written(checkout, rendered):
    assert "/host/proc" not in json.dumps(rendered["services"]["gpu"])
    files = ("--file=compose.yaml", "--file=compose.gpu.yaml", "--file=compose.processes.yaml")
    gpu = json.loads(checkout.compose(*files, "config", "--format=json"))["services"]["gpu"]
    (proc,) = (mount for mount in gpu["volumes"] if mount["target"] == "/host/proc")

    assert (proc["source"], proc["read_only"]) == ("/proc", True)
    assert gpu["pid"] == "host"
    assert gpu["read_only"] is True
    assert gpu["cap_drop"] == ["ALL"]


def test_one_group_may_own_both_runs_and_secrets(checkout):
    groups = ("STEPWATCH_PATH_GROUP=1000", "STEPWATCH_SECRETS_GROUP=1000")
    done = checkout.run("env", *groups, "docker", "compose", "config", "--format=json")

    assert done.returncode == 0, done.stderr
    exporter = json.loads(done.stdout)["services"]["exporter"]
    assert [int(group) for group in exporter["group_add"]] == [1000, 1000]


def test_every_service_is_hardened(rendered):
    for name, service in rendered["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["mem_limit"]) > 0, name
        assert service["pids_limit"] > 0, name
        assert "privileged" not in service, name
        # It becomes the owner of the checkout, which takes two capabilities, and is not part of the stack.
        assert ("cap_add" in service) == (name == "generate"), name


def test_images_are_pinned_and_each_can_be_replaced(checkout, rendered, monkeypatch):
    images = {name: service["image"] for name, service in rendered["services"].items()}
    assert all(":" in image and not image.endswith(":latest") for image in images.values())
    for part in ("PROMETHEUS", "ALERTMANAGER", "GRAFANA", "NODE", "EXPORTER", "GENERATE"):
        monkeypatch.setitem(checkout.docker.env, f"STEPWATCH_{part}_IMAGE", f"mirror/{part.lower()}:1")
    replaced = json.loads(checkout.compose("--profile=tools", "--profile=demo", "config", "--format=json"))
    assert all(service["image"].startswith("mirror/") for service in replaced["services"].values())


def test_versions_of_other_projects_are_written_in_compose_yaml_alone():
    compose = (CHECKOUT / "compose.yaml").read_text()
    pinned = dict(re.findall(r"(?:prom|grafana)/([\w-]+):v?(\d+\.\d+\.\d+)\}", compose))
    assert pinned.keys() == {"prometheus", "alertmanager", "node-exporter", "grafana"}
    for version in pinned.values():
        found = subprocess.run(
            ["git", "grep", "-lF", version, "--", "*.py", "*.yaml", "Dockerfile", "exporter/Dockerfile"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=True,
        )
        # The modules that tests build pin theirs with checksums; tests/system compares them.
        assert [file for file in found.stdout.split() if not file.startswith("tests/")] == ["compose.yaml"]


def test_the_pinned_grafana_is_outside_cve_2026_76154():
    [image] = re.findall(r"grafana/grafana:(\d+)\.(\d+)\.(\d+)", (CHECKOUT / "compose.yaml").read_text())
    grafana = tuple(map(int, image))
    assert not (13, 1, 0) <= grafana <= (13, 1, 5)
    assert not (13, 2, 0) <= grafana <= (13, 2, 1)


def test_the_image_is_built_from_what_is_pinned_elsewhere():
    compose, dockerfile = (
        (CHECKOUT / "compose.yaml").read_text(),
        (CHECKOUT / "exporter/Dockerfile").read_text(),
    )
    for name in re.findall(r"^ARG (\w+_IMAGE)$", dockerfile, re.MULTILINE):
        assert f"      {name}: " in compose
    small, whole = (_locked(CHECKOUT / name) for name in ("exporter/requirements.lock", "requirements.lock"))
    assert small.items() <= whole.items()
    light_page, verls_file = {"jinja2", "markupsafe"}, {"pyyaml"}
    logs_and_gpus = {"google-crc32c", "nvidia-ml-py", "orjson", "prometheus-client"}
    apprise = {"apprise", "certifi", "charset-normalizer", "click", "markdown", "oauthlib", "requests"}
    apprise |= {"idna", "requests-oauthlib", "urllib3"}
    assert small.keys() == logs_and_gpus | light_page | verls_file | apprise | {"bcrypt"}


def _locked(lock: Path) -> dict[str, str]:
    """Each package with its version and hashes."""
    entries = re.split(r"\n(?=[a-z])", lock.read_text().strip())
    return {entry.partition("==")[0]: entry for entry in entries}


def test_our_images_carry_our_version(rendered):
    for name in ("exporter", "generate"):
        assert rendered["services"][name]["image"] == f"localhost/stepwatch/{name}:{__version__}"


def test_the_bridge_alone_may_write_to_the_runs_and_only_by_its_profile(checkout, rendered):
    assert "bridge" not in rendered["services"]
    words = ("--profile=bridge", "config", "--format=json")
    services = json.loads(checkout.compose(*words))["services"]
    writers = {
        name
        for name, service in services.items()
        for mount in service.get("volumes", [])
        if mount["target"] == "/runs" and not mount.get("read_only")
    }

    assert writers == {"bridge"}
    acting = services["bridge"]
    assert (acting["read_only"], acting["cap_drop"], "pid" in acting) == (True, ["ALL"], False)
    assert [port["host_ip"] for port in acting["ports"]] == ["127.0.0.1"]


def test_the_docker_socket_is_nowhere(rendered):
    assert "docker.sock" not in json.dumps(rendered)


def test_every_published_port_is_on_the_loopback(rendered):
    ports = [port for service in rendered["services"].values() for port in service.get("ports", [])]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert len(ports) == 5


def test_defaults_are_those_of_config_yaml(docker, rendered, tmp_path):
    (tmp_path / "config.yaml").write_text("")
    config = load(tmp_path / "config.yaml")
    ours = {**of_config(config), **of_machine(CHECKOUT, CHECKOUT / "runs", CHECKOUT)}
    env = {**ours, "TZ": "", "STEPWATCH_PATH_GROUP": "10001", "STEPWATCH_SECRETS_GROUP": "65534"}
    # The very same project, once with what `make up` gives it and once with nothing.
    given = _config(docker, env)
    assert given == _config(docker, {"TZ": ""})


def test_the_demo_logs_as_config_yaml_says(docker, tmp_path):
    (tmp_path / "config.yaml").write_text("log: {level: debug, format: json}")
    given = _config(docker, {**of_config(load(tmp_path / "config.yaml")), "COMPOSE_PROFILES": "demo"})
    for name in ("demo", "demo-gpu"):
        assert given["services"][name]["command"][-2:] == ["--log.level=debug", "--log.format=json"]


def _config(docker, env) -> dict[str, Any]:
    done = subprocess.run(
        ["docker", "compose", "--env-file=/dev/null", "config", "--format=json"],
        cwd=CHECKOUT,
        env={**docker.env, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
