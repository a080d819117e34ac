"""The whole stack on a real Docker Engine, from `make up DEMO=1` to `make down` and back."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from exporter.credentials import PEOPLE, authorization
from tests.compose.checkout import PUBLISHED, until
from tests.compose.conftest import SETTINGS
from tests.real.asking import ask
from tests.real.silences import comments, silence

pytestmark = pytest.mark.e2e

SERVICES = {
    "prometheus",
    "alertmanager",
    "grafana",
    "exporter",
    "gpu",
    "node",
    "demo",
    "demo-gpu",
}
DEMO_ALERTS = {
    ("KLExplosion", "demo/kl-explodes"),
    ("RewardStagnation", "demo/stagnates"),
    ("Stalled", "demo/hangs"),
    ("GPUXid", ""),
}


def _status(pid: int, key: str) -> list[str]:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return line.split()[1:]
    raise AssertionError(key)


def test_all_are_healthy_and_every_published_port_is_on_the_loopback(demo):
    containers = demo.containers()
    assert containers.keys() == SERVICES
    for name, container in containers.items():
        state = container["State"]
        assert state["Running"], name
        assert name == "demo" or state["Health"]["Status"] == "healthy", name
        for bindings in container["NetworkSettings"]["Ports"].values():
            assert {binding["HostIp"] for binding in bindings or []} <= {"127.0.0.1"}, name


def test_no_container_is_root_or_has_a_capability_or_a_writable_root(demo):
    for name, container in demo.containers().items():
        pid = container["State"]["Pid"]
        assert 0 not in map(int, _status(pid, "Uid")), name
        assert {int(mask, 16) for key in ("CapEff", "CapPrm", "CapBnd") for mask in _status(pid, key)} == {
            0
        }, name
        assert _status(pid, "NoNewPrivs") == ["1"], name
        assert container["HostConfig"]["ReadonlyRootfs"], name
        roots = [line.split() for line in Path(f"/proc/{pid}/mounts").read_text().splitlines()]
        assert "ro" in next(fields[3] for fields in roots if fields[1] == "/").split(","), name


TARGETS = {
    ("runs", "exporter:9410"),
    ("gpu", "gpu:9411"),
    ("gpu", "demo-gpu:9411"),
    ("node", "node:9100"),
    ("prometheus", "prometheus:9090"),
    ("alertmanager", "alertmanager:9093"),
}
RUNS = {"demo/healthy", "demo/kl-explodes", "demo/stagnates", "demo/hangs"}


def _up(demo) -> set[tuple[str, str]]:
    up = demo.query('up{role!~"rollout|ray"} == 1')
    return {(each["metric"]["job"], each["metric"]["instance"]) for each in up}


def test_every_target_is_up_and_the_runs_and_the_machine_are_read(demo):
    until(lambda: _up(demo) == TARGETS, "all targets up")
    until(lambda: len(demo.query('up{role="rollout",run="demo/healthy"} == 1')) == 2, "its servers")
    until(lambda: len(demo.query('up{role="ray"} == 1')) == 3, "the pages of the demo")
    until(lambda: demo.query('rl_run_power_watts{run="demo/healthy"} > 0'), "the power of its GPUs")
    assert not demo.query("up == 0")
    until(lambda: {each["metric"]["run"] for each in demo.query("rl_step")} == RUNS, "the demo's runs")
    assert float(demo.query("node_memory_MemTotal_bytes")[0]["value"][1]) > 2**28
    mounts = {each["metric"]["mountpoint"] for each in demo.query("node_filesystem_size_bytes")}
    assert "/" in mounts


def test_the_demo_fires_in_alertmanager_and_at_the_webhook(demo, sink):
    until(lambda: demo.firing() >= DEMO_ALERTS, f"alerts of the demo: {DEMO_ALERTS}")
    until(lambda: set(sink.alerts("firing")) >= DEMO_ALERTS, "messages of the demo's alerts")
    assert not [name for name, run in demo.firing() if run == "demo/healthy"]


def test_status_shows_every_container_its_settings_and_what_fires(demo, sink):
    done = demo.stepwatch("status")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert lines.keys() >= SERVICES
    assert all(lines[name].split()[1] == "up" for name in SERVICES)
    assert all(demo.url(part) in lines[part] for part in PUBLISHED)
    assert "current" in lines["prometheus"]
    assert "current" in lines["alertmanager"]
    assert "current" in lines["gpu"]
    assert "KLExplosion  demo/kl-explodes" in done.stdout
    assert " and the Docker volume demo-runs: " in done.stdout


def test_both_ask_for_a_password_that_few_containers_can_read(demo):
    for part in ("prometheus", "alertmanager"):
        assert ask(f"127.0.0.1:{demo.ports[part]}", "/-/ready").status == 401
    password = demo.compose("exec", "-T", "grafana", "cat", "/run/people/password")
    login = {"Authorization": authorization(password, PEOPLE)}
    assert ask(f"127.0.0.1:{demo.ports['alertmanager']}", "/-/ready", **login).status == 200

    def readers(volume: str) -> set[str]:
        return {
            name
            for name, container in demo.containers().items()
            if f"stepwatch_{volume}" in {mount.get("Name") for mount in container["Mounts"]}
        }

    assert readers("people-password") == {"grafana"}
    assert readers("credentials") == {"exporter", "prometheus", "alertmanager", "grafana"}


def test_the_password_stands_in_no_log_setting_or_argument(demo):
    password = demo.compose("exec", "-T", "prometheus", "cat", "/run/stepwatch/internal-password")
    assert len(password) == 43
    assert password not in json.dumps(demo.containers())
    assert password not in demo.compose("logs")
    assert not any(password.encode() in content for content in _generated(demo).values())
    for container in demo.containers().values():
        assert password not in demo.docker.docker("top", container["Id"])


def test_a_test_message_arrives_and_nothing_of_it_stays(demo, sink):
    done = demo.stepwatch("test-alert", "sink")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name, _ in sink.alerts("firing")].count("TestAlert") == 1
    assert demo.stepwatch("test-alert", "nobody").returncode == 2


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(name, marks=() if name == "prometheus" else pytest.mark.world)
        for name in sorted(SERVICES - {"demo", "demo-gpu"})
    ],
)
def test_a_killed_container_comes_back_and_no_alert_is_lost(demo, sink, service):
    before = demo.containers()[service]
    # Not `docker kill`, which counts as the user's wish.
    os.kill(before["State"]["Pid"], signal.SIGKILL)

    def back() -> bool:
        now = demo.containers().get(service)
        return (
            bool(now)
            and now["State"]["Pid"] not in (0, before["State"]["Pid"])
            and now["State"]["Health"]["Status"] == "healthy"
        )

    until(back, f"{service} back")
    until(lambda: demo.firing() >= DEMO_ALERTS, "all alerts are there again")
    assert not set(sink.alerts("resolved")) & DEMO_ALERTS


@pytest.mark.world
def test_down_and_up_keep_silences_and_data(demo, sink):
    silence(demo.url("alertmanager"), "run", "demo/kl-explodes", "known")
    password = demo.compose("exec", "-T", "grafana", "cat", "/run/people/password")
    moment = time.time()

    done = demo.stepwatch("down")
    assert done.returncode == 0, done.stdout + done.stderr
    ended = time.time()
    assert not demo.containers()
    assert "not running" in demo.stepwatch("status").stdout
    done = demo.stepwatch("up", "--demo")
    assert done.returncode == 0, done.stdout + done.stderr

    assert comments(demo.url("alertmanager")) == ["known"]
    before = f'max_over_time(rl_step{{run="demo/healthy"}}[1m] @ {moment:.0f})'
    assert float(demo.query(before)[0]["value"][1]) > 100
    assert not demo.query(f"rl_step @ {ended:.0f} or gpu_info @ {ended:.0f}")
    assert demo.compose("exec", "-T", "grafana", "cat", "/run/people/password") == password
    assert len(password) == 24


def _rule(demo, name: str) -> str:
    groups = demo.page("prometheus", "/api/v1/rules")["data"]["groups"]
    rules = (rule for group in groups for rule in group["rules"])
    return "\n".join(
        each["query"] for each in rules if name in (each["name"], each.get("labels", {}).get("alert"))
    )


def _started(demo) -> dict[str, str]:
    return {name: each["State"]["StartedAt"] for name, each in demo.containers().items()}


def _generated(demo) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in demo.folder.glob("*/generated/**/*") if file.is_file()}


def test_a_config_edit_and_generate_take_effect_without_a_restart(demo):
    before = _started(demo)
    renamed = [{**receiver, "name": "renamed"} for receiver in SETTINGS["receivers"]]
    alerts = {"KL": {"critical": {"above_start": 1.25}}, "Stalled": {"silence": "7m"}}
    demo.write({"receivers": renamed, "alerts": alerts})
    done = demo.run("docker", "compose", "run", "--rm", "-T", "generate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finds no fault in the files of prometheus" in done.stdout
    assert "Alertmanager loaded the new settings" in done.stdout

    receivers = [each["name"] for each in demo.page("alertmanager", "/api/v2/receivers")]
    assert "renamed" in receivers
    until(lambda: "1.25" in _rule(demo, "KLExplosion"), "the new limit in Prometheus")
    until(lambda: "restarting" in demo.compose("logs", "exporter"), "the exporter's new silence")
    assert _started(demo) == before
    assert demo.stepwatch("status").returncode == 0


def test_a_broken_config_changes_nothing_that_runs(demo):
    files, started, rule = _generated(demo), _started(demo), _rule(demo, "KLExplosion")
    demo.write({**SETTINGS, "alerts": {"KL": {"critical": {"above_start": "lots"}}}})

    for words in (["docker", "compose", "run", "--rm", "-T", "generate"], ["make", "generate"]):
        done = demo.run(*words)
        assert done.returncode != 0
        assert "config.yaml" in done.stderr
        assert "above_start" in done.stderr
    up = demo.stepwatch("up", "--demo")
    assert up.returncode == 2
    assert "Traceback" not in up.stderr

    assert _generated(demo) == files
    time.sleep(8)  # longer than Prometheus waits between two looks at its files
    assert (_started(demo), _rule(demo, "KLExplosion")) == (started, rule)
    demo.write(SETTINGS)


def test_generated_files_belong_to_the_owner_of_the_checkout(demo):
    for path in (demo.folder, *demo.folder.rglob("*")):
        os.chown(path, 4321, 4321, follow_symlinks=False)
    demo.write({**SETTINGS, "alerts": {"KL": {"critical": {"above_start": 1.5}}}})
    os.chown(demo.config, 4321, 4321)
    done = demo.run("docker", "compose", "run", "--rm", "-T", "generate")
    assert done.returncode == 0, done.stdout + done.stderr
    changed = demo.folder / "prometheus/generated/rules/rl.yml"
    assert "1.5" in changed.read_text()
    assert (changed.stat().st_uid, changed.stat().st_gid) == (4321, 4321)


@pytest.mark.world
def test_the_demo_starts_over(demo):
    # GPUXid tells of the last hour, and after a reset the simulated cards are the same.
    runs = {(name, run) for name, run in DEMO_ALERTS if run}
    until(lambda: demo.firing() & runs, "alerts of the demo's runs")
    done = demo.stepwatch("demo-reset")
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: not demo.firing() & runs, "the alerts of the demo's runs are over")
    again = ("KLExplosion", "demo/kl-explodes")
    until(lambda: again in demo.firing(), "they come again")


def test_without_the_demo_its_containers_go(demo):
    done = demo.stepwatch("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert demo.containers().keys() == SERVICES - {"demo", "demo-gpu"}
    until(lambda: not demo.query("rl_step"), f"the demo's runs are gone, after {done.stdout}")
    assert not demo.firing() & {(name, run) for name, run in DEMO_ALERTS if run}
    done = demo.stepwatch("demo-reset")
    assert done.returncode == 1
    assert "The demo is not running" in done.stdout
