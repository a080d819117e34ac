"""What config.yaml becomes in prometheus.yml and the files of targets."""

import re
from pathlib import Path

import pytest
import yaml

from stepwatch.config import load
from stepwatch.config.deployment import InContainers, OnThisMachine
from stepwatch.render.generator import render_all
from stepwatch.schema.scalars import Duration

CHECKOUT = Path(__file__).parents[2]
OWN_JOBS = ("runs", "prometheus", "alertmanager", "gpu", "node")


@pytest.fixture(name="rendered")
def _rendered(tmp_path):
    """Render a configuration for a place; one dict of texts by path below prometheus/generated."""
    (tmp_path / "token").write_text("hunter2")

    def rendered(text="", place=OnThisMachine):
        (tmp_path / "config.yaml").write_text(text)
        config = load(tmp_path / "config.yaml")
        return {
            str(path.relative_to("prometheus/generated")): content.decode()
            for path, content in render_all(config, CHECKOUT, place, ["prometheus"]).items()
        }

    return rendered


@pytest.fixture(name="containers")
def _containers(tmp_path, rendered):
    """The place of the Compose services, whose secrets are in this test's folder, for them to read."""
    tmp_path.chmod(0o755)
    (tmp_path / "token").chmod(0o644)
    return lambda _: InContainers({tmp_path: "/etc/stepwatch/secrets"})


def prometheus(files):
    return yaml.safe_load(files["prometheus.yml"])


def job(files, name):
    return next(job for job in prometheus(files)["scrape_configs"] if job["job_name"] == name)


def targets(files):
    """The targets of each job of ours."""
    return {
        name: [
            target for group in yaml.safe_load(files[f"targets/{name}.yml"]) for target in group["targets"]
        ]
        for name in OWN_JOBS
    }


def test_the_stacks_own_addresses_stand_only_in_the_files_of_targets(rendered):
    files = rendered("ports: {exporter: 9419, gpu: 9410}\nlisten: 10.0.0.5\n")

    assert targets(files) == {
        "runs": ["10.0.0.5:9419"],
        "gpu": ["10.0.0.5:9410"],
        "node": [],
        "prometheus": ["10.0.0.5:9090"],
        "alertmanager": ["10.0.0.5:9093"],
    }
    # Servers that come and go are asked for by URL, and Prometheus has no file for that.
    asked = prometheus(files)
    (url,) = (found.pop("url") for job in asked["scrape_configs"] for found in job.get("http_sd_configs", ()))
    assert url == "http://10.0.0.5:9419/sd/rollout"
    assert not re.search(r"[0-9.]+:[0-9]{4}", yaml.safe_dump(asked))


def test_containers_are_reached_by_their_service_names_whatever_the_ports_of_the_host(rendered, containers):
    files = rendered("ports: {exporter: 9419, gpu: 9410}\nlisten: 10.0.0.5\n", containers)

    assert targets(files) == {
        "runs": ["exporter:9410"],
        "gpu": ["gpu:9411"],
        "node": ["node:9100"],
        "prometheus": ["prometheus:9090"],
        "alertmanager": ["alertmanager:9093"],
    }


def test_intervals_are_those_of_the_configuration_and_timeouts_no_longer(rendered):
    files = rendered(
        "intervals: {runs: 3s, scrape: 20s, stack_rules: 40s}\n"
        'scrape: [{job: a, targets: ["a:1"], interval: 7s}, {job: b, targets: ["b:1"]}]\n'
    )

    assert prometheus(files)["global"] == {
        "scrape_interval": "20s",
        "scrape_timeout": "10s",
        "evaluation_interval": "40s",
    }
    found = {
        name: (job(files, name)["scrape_interval"], job(files, name)["scrape_timeout"])
        for name in ("runs", "a", "b")
    }
    assert found == {"runs": ("3s", "3s"), "a": ("7s", "7s"), "b": ("20s", "10s")}
    assert all(Duration.parse(timeout) <= Duration.parse(interval) for interval, timeout in found.values())


def test_a_job_of_fixed_targets_has_its_role_and_labels(rendered):
    found = job(
        rendered('scrape: [{job: a, role: gpu, targets: ["a:1", "b:2"], labels: {rack: "r$1"}}]'), "a"
    )

    assert found["static_configs"] == [{"targets": ["a:1", "b:2"], "labels": {"role": "gpu", "rack": "r$1"}}]
    assert (found["metrics_path"], found["scheme"]) == ("/metrics", "http")


def test_a_job_of_target_files_gets_role_and_labels_by_relabelling(rendered, tmp_path):
    found = job(rendered('scrape: [{job: a, files: [sd/*.json], labels: {rack: "r$1"}}]'), "a")

    assert found["file_sd_configs"] == [{"files": [f"{tmp_path}/sd/*.json"]}]
    assert found["relabel_configs"] == [
        {"target_label": "role", "replacement": "other"},
        {"target_label": "rack", "replacement": "r$$1"},
    ]


def test_what_containers_are_to_read_is_named_as_they_see_it(rendered, containers):
    files = rendered(
        "scrape:\n"
        '  - {job: a, targets: ["127.0.0.1:1", "b:2"], bearer_token_file: token}\n'
        "  - {job: sd, files: [sd/*.json]}\n",
        containers,
    )

    assert job(files, "a")["authorization"] == {"credentials_file": "/etc/stepwatch/secrets/token"}
    assert job(files, "a")["static_configs"][0]["targets"] == ["host.docker.internal:1", "b:2"]
    assert job(files, "sd")["file_sd_configs"] == [{"files": ["/etc/stepwatch/secrets/sd/*.json"]}]


def test_external_labels_and_central_systems_are_written_without_their_secrets(rendered, tmp_path):
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\n")
    files = rendered(
        "external_labels: {cluster: night}\n"
        "remote_write:\n"
        '  - {url: "https://a/api/v1/write", token_file: token, ca_file: ca.pem}\n'
        '  - {url: "http://b/write", username: us, password_file: token, headers: {X-Scope-OrgID: rl}}\n'
    )

    config = prometheus(files)
    assert config["global"]["external_labels"] == {"cluster": "night"}
    assert config["remote_write"] == [
        {
            "url": "https://a/api/v1/write",
            "authorization": {"credentials_file": f"{tmp_path}/token"},
            "tls_config": {"ca_file": str(authority)},
        },
        {
            "url": "http://b/write",
            "headers": {"X-Scope-OrgID": "rl"},
            "basic_auth": {"username": "us", "password_file": f"{tmp_path}/token"},
        },
    ]
    assert "hunter2" not in "".join(files.values())


def test_a_central_ruler_evaluates_rules_in_place_of_this_prometheus(rendered):
    here, elsewhere = rendered(), rendered("rules: none")
    assert yaml.safe_load(here["prometheus.yml"])["rule_files"] == ["rules/*.yml"]
    assert yaml.safe_load(elsewhere["prometheus.yml"])["rule_files"] == []
    rules = {name: text for name, text in here.items() if name.startswith("rules/")}
    assert {name: text for name, text in elsewhere.items() if name.startswith("rules/")} == rules != {}
