"""The real parts, brought up by the real command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepwatch.environment import CHECKOUT
from stepwatch.native import pages, processes
from stepwatch.native.state import State
from tests.native.release import unpacked_release
from tests.real import alertmanager, free_port, prometheus, query
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

SECRET = "kein-mensch-darf-das-lesen"


@dataclass
class Installation:
    """A configuration and a state folder of their own; commands run as a user types them."""

    folder: Path
    environment: dict[str, str]
    ports: dict[str, int]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config(self) -> Path:
        return self.folder / "my config.yaml"

    def configure(self, more: str = "") -> None:
        ports = "".join(f"  {name}: {port}\n" for name, port in self.ports.items())
        self.config.write_text(f"ports:\n{ports}{more}")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            **self.environment,
            "STEPWATCH_STATE": str(self.state),
            "PYTHONPATH": str(CHECKOUT),
        }
        command = [sys.executable, "-m", "stepwatch", *words]
        return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--config", str(self.config), "--runs", str(self.folder / "my runs"))

    def url(self, part: str) -> str:
        return f"http://127.0.0.1:{self.ports[part]}"

    def pids(self) -> set[int]:
        return {process.pid for process in processes.marked(str(self.state))}


def _newest() -> dict[str, str]:
    return {
        "STEPWATCH_PROMETHEUS": str(prometheus("3.13").server),
        "STEPWATCH_PROMTOOL": str(prometheus("3.13").tool),
        "STEPWATCH_ALERTMANAGER": str(alertmanager("0.31").server),
        "STEPWATCH_AMTOOL": str(alertmanager("0.31").tool),
    }


@pytest.fixture(name="installation", params=["oldest", "newest"])
def _installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    ports = {name: free_port() for name in ("exporter", "prometheus", "alertmanager", "grafana")}
    tools = _newest() if request.param == "newest" else {}
    installation = Installation(tmp_path / "a place", tools, ports)
    installation.folder.mkdir()
    installation.configure()
    yield installation
    installation.run("down")


def test_the_stack_comes_up_takes_changes_refuses_faults_and_leaves_nothing(
    installation: Installation,
) -> None:
    done = installation.up()
    assert done.returncode == 0, done.stderr + done.stdout
    for part in ("exporter", "prometheus", "alertmanager"):
        assert f"{part} is ready" in done.stdout
        assert installation.url(part) in done.stdout
    assert (installation.folder / "my runs").is_dir()
    assert "which did not exist" in done.stdout
    assert installation.run("status").returncode == 0
    pids = installation.pids()

    _runs_are_remembered(installation, pids)
    _config_is_refused_and_all_stays(installation, pids)
    _change_is_applied_in_place(installation, pids)
    _targets_are_scraped(installation)

    done = installation.run("down")
    assert done.returncode == 0, done.stderr
    assert installation.pids() == set()
    assert sorted(path.name for path in installation.state.iterdir()) == ["data", "logs", "rendered", "runs"]
    assert installation.run("status").returncode == 3


def _runs_are_remembered(installation: Installation, pids: set[int]) -> None:
    done = installation.run("up", "--config", str(installation.config))

    assert f"Reading runs from {installation.folder / 'my runs'}, as RUNS= said last time" in done.stdout
    assert installation.pids() == pids


def _config_is_refused_and_all_stays(installation: Installation, pids: set[int]) -> None:
    rendered = _texts(installation.state / "rendered")
    installation.configure("intervals: {rules: never}\n")

    done = installation.up()

    assert done.returncode == 2
    assert done.stderr.startswith(f"{installation.config}:6: intervals.rules:")
    assert "Traceback" not in done.stderr
    assert installation.pids() == pids
    assert _texts(installation.state / "rendered") == rendered
    assert installation.run("status").returncode == 0


def _change_is_applied_in_place(installation: Installation, pids: set[int]) -> None:
    installation.configure("intervals: {scrape: 1s}\nalerts: {Watchdog: {enabled: false}}\n")
    assert "Watchdog" in _rules(installation)

    assert installation.up().returncode == 0

    assert "Watchdog" not in _rules(installation)
    assert installation.pids() == pids
    assert installation.run("status").returncode == 0


def _targets_are_scraped(installation: Installation) -> None:
    def scraped() -> bool:
        up = query(installation.url("prometheus"), 'up{job=~"runs|prometheus|alertmanager"} == 1')
        return len(up) == 3

    eventually(scraped, timeout=40)


def _rules(installation: Installation) -> str:
    return pages.read(f"{installation.url('prometheus')}/api/v1/rules") or ""


def _texts(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_killed_parts_come_back_and_a_port_in_use_is_refused(installation: Installation) -> None:
    assert installation.up().returncode == 0
    parts = json.loads((installation.state / "parts.json").read_text())
    assert [part["name"] for part in parts][:3] == ["exporter", "prometheus", "alertmanager"]

    supervisor = int((installation.state / "supervisord.pid").read_text())
    for pid in installation.pids() - {supervisor}:
        os.kill(pid, signal.SIGKILL)

    eventually(lambda: installation.run("status").returncode == 0, timeout=30)
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
    assert SECRET not in done.stdout + done.stderr + installation.run("status").stdout
    assert not [file for file, text in _texts(installation.state).items() if SECRET.encode() in text]
    for pid in installation.pids():
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_status_and_down_need_no_readable_configuration(installation: Installation) -> None:
    assert installation.up().returncode == 0
    installation.config.write_text("{")

    assert installation.run("status").returncode == 0
    assert installation.run("down").returncode == 0
    assert processes.marked(State(installation.state).mark) == []


def test_a_grafana_on_path_is_started_and_up_tells_how_to_get_in(
    installation: Installation, tmp_path: Path
) -> None:
    programs = unpacked_release(tmp_path / "grafana")
    installation.environment["PATH"] = f"{programs}:{os.environ['PATH']}"

    done = installation.up()

    assert done.returncode == 0, done.stderr + done.stdout
    password = installation.state / "data/grafana-password"
    assert f"user admin, password in {password}" in done.stdout
    assert password.read_text() not in done.stdout
    assert pages.read(f"{installation.url('grafana')}/api/health") is not None
