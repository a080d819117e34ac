"""What each role is rendered to: an agent sends under the name of its node, a hub takes what comes late."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.config import cluster, load
from stepwatch.config.deployment import InContainers, OnThisMachine
from stepwatch.render.generator import Place, render_all
from stepwatch.system.environment import CHECKOUT
from tests.real import prometheus

SECRETS = "/etc/stepwatch/secrets"
AGENT = (
    'role: agent\nnode: node-7\nhub: {url: "https://hub:9415", password_file: password, ca_file: ca.pem}\n'
    "external_labels: {cluster: night}\n"
    'scrape:\n  - {job: vllm, role: rollout, targets: ["10.0.0.7:8000", "127.0.0.1:8001"]}\n'
    "  - {job: others, files: [sd/*.yml]}\n"
)
HUB = "role: hub\nagents: {listen: 0.0.0.0, cert_file: ca.pem, key_file: key.pem}\n"
Rendered = Callable[..., Path]


@pytest.fixture(name="rendered")
def _rendered(tmp_path: Path) -> Rendered:
    """Render a configuration and return the folder of ``<service>/generated``."""
    tmp_path.chmod(0o755)
    files = {
        "password": "hunter2\n",
        "ca.pem": "-----BEGIN CERTIFICATE-----\n",
        "key.pem": "-----BEGIN PRIVATE KEY-----\nhunter2\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o644)

    def rendered(text: str, place: Place = OnThisMachine) -> Path:
        (tmp_path / "config.yaml").write_text(text)
        for path, content in render_all(load(tmp_path / "config.yaml"), CHECKOUT, place).items():
            assert b"hunter2" not in content
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        return tmp_path

    return rendered


@pytest.fixture(name="containers")
def _containers(tmp_path: Path) -> Place:
    return lambda _: InContainers({tmp_path: SECRETS})


def _settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "prometheus/generated/prometheus.yml").read_text())
    return found


def _instance(job: dict[str, Any], address: str, own: str = "") -> str:
    """What Prometheus makes the label `instance` of a target, by the rules for it."""
    instance = own
    for rule in job["relabel_configs"]:
        if rule["target_label"] == "instance":
            values = {"instance": instance, "__address__": address}
            text = ";".join(values[name] for name in rule["source_labels"])
            if match := re.fullmatch(rule.get("regex", "(.*)"), text):
                instance = rule["replacement"].replace("${1}", match[1])
    return instance or address


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["2.42", "3.13"])
@pytest.mark.parametrize("contained", [False, True])
def test_promtool_takes_what_each_role_is_rendered_to(
    rendered: Rendered, containers: Place, version: str, contained: bool
) -> None:
    place = containers if contained else OnThisMachine
    for text, mode in ((AGENT, ["--agent"]), (HUB, []), ("", [])):
        file = rendered(text, place) / "prometheus/generated/prometheus.yml"
        command = [prometheus(version).tool, "check", "config", "--syntax-only", *mode, file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_agent_is_given_nothing_that_judges_or_notifies(rendered: Rendered) -> None:
    folder = rendered(AGENT)

    assert not {"rule_files", "alerting"} & _settings(folder).keys()
    files = {path.relative_to(folder) for path in folder.rglob("*/generated/**/*") if path.is_file()}
    assert {path.parts[0] for path in files} == {"prometheus", "exporter"}
    assert {path.name for path in files if path.parts[0] == "prometheus"} == {
        *("prometheus.yml", "runs.yml", "gpu.yml", "node.yml")
    }
    asked = json.loads((folder / "exporter/generated/runs.json").read_text())
    assert [asked[name] for name in ("prometheus_url", "alertmanager_url", "alerting")] == [None] * 3


def test_an_agent_sends_by_its_own_exporter_and_only_under_its_own_name(
    rendered: Rendered, containers: Place
) -> None:
    """A change of hub is one of the exporter's settings: its Prometheus, which keeps the samples, goes on."""
    for place, exporter in ((OnThisMachine, "127.0.0.1:9410"), (containers, "exporter:9410")):
        settings = _settings(rendered(AGENT, place))
        (hub,) = settings["remote_write"]
        assert (hub["name"], hub["url"]) == ("hub", f"http://{exporter}/hub/write")
        assert hub["basic_auth"]["username"] == "internal"
        assert settings["global"]["external_labels"] == {"node": "node-7", "cluster": "night"}
        assert hub["write_relabel_configs"][-1] == {"target_label": "node", "replacement": "node-7"}
        assert hub["queue_config"]["retry_on_http_429"] is True
        other = _settings(rendered(AGENT.replace("https://hub:9415", "https://another"), place))
        assert other == settings


def test_what_is_local_to_an_agent_has_the_name_of_its_node_in_instance(
    rendered: Rendered, containers: Place
) -> None:
    for place in (OnThisMachine, containers):
        jobs = {job["job_name"]: job for job in _settings(rendered(AGENT, place))["scrape_configs"]}
        for name, job in jobs.items():
            if name != "docker":
                assert _instance(job, "127.0.0.1:9410") == "node-7:9410", name
                assert _instance(job, "[::1]:9410") == "node-7:9410"
                assert _instance(job, "10.0.0.7:8000") == "10.0.0.7:8000"
                assert _instance(job, "127.0.0.1:9410", "mine") == "mine"
        assert {"runs", "prometheus", "gpu", "node", "rollouts", "vllm", "others"} <= jobs.keys()
        assert not {"alertmanager", "receiver"} & jobs.keys()
    for address in ("exporter:9410", "host.docker.internal:8001"):
        assert _instance(jobs["runs"], address) == f"node-7:{address.partition(':')[2]}"
    assert _instance(jobs["runs"], "exporters:9410") == "exporters:9410"
    assert _instance(jobs["docker"], "172.17.0.2:8000", "vllm-1") == "node-7/vllm-1"


def test_what_is_late_is_taken_for_longer_than_agents_keep_it(rendered: Rendered) -> None:
    for role, name in ((HUB, "prometheus"), (HUB, "receiver"), (AGENT, "prometheus")):
        file = rendered(role) / f"prometheus/generated/{name}.yml"
        window = yaml.safe_load(file.read_text())["storage"]["tsdb"]["out_of_order_time_window"]
        assert window == str(cluster.OUT_OF_ORDER)
    assert cluster.OUT_OF_ORDER.seconds >= cluster.BUFFER.seconds + 4 * 3600
    assert "storage" not in _settings(rendered(""))


def _asked(folder: Path) -> dict[str, Any]:
    """The settings of the run exporter."""
    found: dict[str, Any] = json.loads((folder / "exporter/generated/runs.json").read_text())
    return found


def test_an_agent_sends_to_any_system_with_its_path_login_and_headers(rendered: Rendered) -> None:
    """That of a tenant of Mimir, say; without a path it is Prometheus' own."""
    folder = rendered(AGENT)
    files = {"password_file": f"{folder}/password", "ca_file": f"{folder}/ca.pem"}
    own = {"url": "https://hub:9415/api/v1/write", "username": "node-7", "headers": {}}
    assert _asked(folder)["hub"] == {**own, **files}
    more = "headers: {X-Scope-OrgID: rl}, ca_file: ca.pem"
    for login, username, name in (
        ("username: rl, password_file: password", "rl", "password_file"),
        ("token_file: password", "n", "token_file"),
    ):
        hub = f'role: agent\nnode: n\nhub: {{url: "https://m/api/v1/push", {login}, {more}}}\n'
        folder = rendered(hub)
        files = {name: f"{folder}/password", "ca_file": f"{folder}/ca.pem"}
        sent = {"url": "https://m/api/v1/push", "username": username, "headers": {"X-Scope-OrgID": "rl"}}
        assert _asked(folder)["hub"] == {**sent, **files}


def test_a_hub_leads_to_the_pages_of_agents_else_to_grafana(rendered: Rendered) -> None:
    page = 'agents: {page: "http://{node}.example.org:9410/"}\n'
    grafana = "http://127.0.0.1:3000/d/stepwatch-training?var-run={run}&var-cluster={cluster}"
    for text, leads in (
        (f"role: hub\n{page}", "http://{node}.example.org:9410/run/{run}"),
        ("role: hub\n", grafana),
        (AGENT, None),
        ("", None),
    ):
        assert _asked(rendered(text))["agents_page"] == leads


def test_only_a_hub_has_a_receiver(rendered: Rendered, containers: Place) -> None:
    for settings, place, address, scheme in (
        ("", containers, "", ""),
        ("", OnThisMachine, "", ""),
        (HUB, containers, "receiver:9415", "https"),
        (HUB, OnThisMachine, "127.0.0.1:9415", "https"),
        ("role: hub\n", OnThisMachine, "127.0.0.1:9415", "http"),
    ):
        folder = rendered(settings, place)
        jobs = {job["job_name"]: job for job in _settings(folder)["scrape_configs"]}
        file = folder / "prometheus/generated/receiver.yml"
        assert file.exists() == ("receiver" in jobs) == bool(address)
        if address:
            assert jobs["receiver"]["static_configs"] == [{"targets": [address]}]
            assert jobs["receiver"]["scheme"] == scheme
            file.unlink()
