"""The real parts, brought up by the real command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.native.installation import PORTS, Installation, made
from tests.native.release import unpacked_release
from tests.real import Server, free_port, query
from tests.real.tools import newest
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

SECRET = "kein-mensch-darf-das-lesen"


@pytest.mark.parametrize("installation", ["oldest"], indirect=True)
def test_the_oldest_versions_come_up_and_go_down(installation: Installation) -> None:
    done = installation.up()
    assert done.returncode == 0, done.stderr + done.stdout
    assert installation.run("status").returncode == 0

    assert installation.run("down").returncode == 0
    assert installation.pids() == set()


def test_the_stack_comes_up_takes_changes_refuses_faults_and_leaves_nothing(
    installation: Installation,
) -> None:
    done = installation.up()
    assert done.returncode == 0, done.stderr + done.stdout
    for part in ("exporter", "gpu", "prometheus", "alertmanager"):
        assert f"{part} is ready" in done.stdout
        assert installation.url(part) in done.stdout
    assert "alertmanager is ready" in done.stdout
    assert (installation.folder / "my runs").is_dir()
    assert "my runs, which did not exist and was created empty." in done.stdout
    status = installation.run("status")
    assert status.returncode == 0
    assert f"The runs in {installation.folder / 'my runs'}: none yet." in status.stdout
    assert "Receivers: none, so alerts are sent to no one." in status.stdout
    pids = installation.parts()

    _runs_are_remembered(installation, pids)
    _damaged_arguments_of_the_last_up_do_not_stop_the_next(installation, pids)
    _config_is_refused_and_all_stays(installation, pids)
    _change_is_applied_in_place(installation, pids)
    _targets_are_scraped(installation)

    done = installation.run("down")
    assert done.returncode == 0, done.stderr
    assert installation.pids() == set()
    assert sorted(path.name for path in installation.state.iterdir()) == [
        "credentials",
        "data",
        "discovered",
        "logs",
        "remembered.json",
        "rendered",
    ]
    assert installation.run("status").returncode == 3


def _runs_are_remembered(installation: Installation, pids: set[int]) -> None:
    done = installation.run("up", *installation.choice)

    assert (
        f"Reading runs from {installation.folder / 'my runs'}, set by the last `make up RUNS=folder`"
        in done.stdout
    )
    assert installation.parts() == pids
    wrap = ("run", "--config", str(installation.config), "--name", "wrapped", "--", "true")
    assert installation.run(*wrap).returncode == 0  # its log goes into that folder too
    assert (installation.folder / "my runs/wrapped.log.launch").is_file()


def _damaged_arguments_of_the_last_up_do_not_stop_the_next(
    installation: Installation, pids: set[int]
) -> None:
    memory = installation.state / "remembered.json"
    memory.write_text("{")

    done = installation.up()

    assert done.returncode == 0, done.stderr + done.stdout
    (aside,) = installation.state.glob("remembered.json.damaged-*")
    assert f"{memory}: the file is damaged (moved to {aside.name})" in done.stdout
    assert json.loads(memory.read_text())["config"] == str(installation.config)
    assert installation.parts() == pids
    aside.unlink()


def _config_is_refused_and_all_stays(installation: Installation, pids: set[int]) -> None:
    rendered = _texts(installation.state / "rendered")
    installation.configure("intervals: {rules: never}\n")

    done = installation.up()

    assert done.returncode == 2
    assert done.stderr.startswith(f"{installation.config}:{len(PORTS) + 2}: intervals.rules:")
    assert "Traceback" not in done.stderr
    assert installation.parts() == pids
    assert _texts(installation.state / "rendered") == rendered
    assert installation.run("status").returncode == 0


def _change_is_applied_in_place(installation: Installation, pids: set[int]) -> None:
    installation.configure(
        "intervals: {scrape: 1s}\nalerts: {Watchdog: {enabled: false}}\nruns: {raw: {limit: 41}}\n"
        "gpus: {interval: 500ms}\n"
    )
    assert '"name":"Watchdog"' in _rules(installation)
    apply = f"`make up CONFIG='{installation.config}'` applies it"
    assert apply in installation.run("status").stdout

    done = installation.up()

    assert done.returncode == 0
    for part in ("exporter", "gpu", "prometheus", "alertmanager"):
        assert f"{part} runs with the current settings" in done.stdout
    assert '"name":"Watchdog"' not in _rules(installation)
    assert installation.parts() == pids
    status = installation.run("status")
    assert status.returncode == 0
    assert status.stdout.count(" current ") == 4
    assert f"{installation.config} is in effect (from the last `make up CONFIG=file`)" in status.stdout
    assert "applies it" not in status.stdout


def _targets_are_scraped(installation: Installation) -> None:
    def scraped() -> bool:
        up = query(installation.url("prometheus"), 'up{job=~"runs|gpu|prometheus|alertmanager"} == 1')
        return len(up) == 4

    eventually(scraped)


def _rules(installation: Installation) -> str:
    return http_client.read(f"{installation.url('prometheus')}/api/v1/rules") or ""


def _texts(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_node_exporter_that_serves_already_is_read_and_not_started(installation: Installation) -> None:
    folder = newest("node_exporter")
    installation.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    command = [folder / "node_exporter", f"--web.listen-address=127.0.0.1:{installation.ports['node']}"]
    with Server(command, f"{installation.url('node')}/") as server:
        done = installation.up()

        assert done.returncode == 0, done.stderr + done.stdout
        assert (
            f"node_exporter: the one that serves on port {installation.ports['node']} already" in done.stdout
        )
        assert server.pid not in installation.pids()
        scraped = 'up{job="node"} == 1'
        eventually(lambda: len(query(installation.url("prometheus"), scraped)) == 1)
        assert installation.run("down").returncode == 0
        assert http_client.read(f"{installation.url('node')}/") is not None


def test_a_port_in_use_is_refused(installation: Installation) -> None:
    assert installation.up().returncode == 0
    second = Installation(installation.folder / "second", installation.environment, installation.ports)
    second.folder.mkdir()
    second.configure()
    done = second.up()
    assert done.returncode == 2
    assert f"ports.prometheus: {installation.ports['prometheus']} is in use by pid " in done.stderr
    assert second.pids() == set()


def test_no_secret_is_in_a_file_of_ours_or_in_a_command_line(installation: Installation) -> None:
    secret = installation.folder / "secret"
    secret.write_text(SECRET)
    webhook = {"url": f"http://127.0.0.1:{free_port()}/", "credentials_file": str(secret)}
    installation.configure(f"receivers: [{{name: chat, webhook: {json.dumps(webhook)}}}]\n")

    done = installation.up()

    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("which only this machine can open") == 1
    status = installation.run("status").stdout
    assert "Receivers: chat." in status
    assert SECRET not in done.stdout + done.stderr + status
    assert not [file for file, text in _texts(installation.state).items() if SECRET.encode() in text]
    for pid in installation.pids():
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_status_and_down_need_no_readable_configuration(installation: Installation) -> None:
    assert installation.up().returncode == 0
    installation.config.write_text("{")

    assert installation.run("status").returncode == 0
    assert installation.run("down").returncode == 0
    assert installation.pids() == set()


def test_a_grafana_on_path_is_started_and_up_reports_how_to_get_in(
    installation: Installation, tmp_path: Path
) -> None:
    programs = unpacked_release(tmp_path / "grafana")
    installation.environment["PATH"] = f"{programs}:{os.environ['PATH']}"

    done = installation.up()

    assert done.returncode == 0, done.stderr + done.stdout
    password = installation.state / "credentials/password"
    assert f"to Grafana as admin; password: {password}" in done.stdout
    assert password.read_text() not in done.stdout
    assert http_client.read(f"{installation.url('grafana')}/api/health") is not None


def test_a_bridge_that_is_no_longer_configured_goes_without_an_alert(tmp_path: Path) -> None:
    installation = made(tmp_path, "oldest")
    (installation.folder / "url").write_text("http://127.0.0.1:9/hook\n")
    installation.configure("receivers: [{name: chat, feishu: {url_file: url}}]\nintervals: {scrape: 1s}\n")
    try:
        assert installation.up().returncode == 0
        prometheus = installation.url("prometheus")
        eventually(lambda: query(prometheus, 'count_over_time(up{job="bridge"}[1m]) > 3'))

        installation.configure("intervals: {scrape: 1s}\n")
        done = installation.up()

        assert done.returncode == 0, done.stdout
        assert not [
            each for each in installation.run("status").stdout.splitlines() if each.startswith("bridge")
        ]
        assert query(prometheus, 'last_over_time(up{job="bridge"}[5m])')[0]["value"][1] == "1"
    finally:
        installation.run("down")
