"""Stepwatch as `pipx install .` gives it: no checkout, an empty home, an environment to read only."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.installation.user import User, built, installed, programs
from tests.real import query
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

NO_PROGRAM = {"STEPWATCH_PROMETHEUS": "/bin/true"}
"""Ends `up` once it has read the configuration."""


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment; read-only from the first command on."""
    folder = tmp_path_factory.mktemp("wheel")
    installed(built(folder), folder / "environment")
    return folder / "environment"


@pytest.fixture(name="user")
def _user(place: Path, tmp_path: Path) -> Iterator[User]:
    user = User(tmp_path / "home", place)
    yield user
    user.run("down")


def test_it_has_all_that_the_packages_of_the_checkout_hold(place: Path) -> None:
    (site,) = place.glob("lib/python*/site-packages")

    def data(root: Path) -> set[Path]:
        files = (
            file for package in ("exporter", "stepwatch", "demo") for file in (root / package).rglob("*")
        )
        held = (file.relative_to(root) for file in files if file.is_file())
        of_image = {"Dockerfile", "requirements.lock"}
        return {file for file in held if not {"__pycache__", "generated", *of_image}.intersection(file.parts)}

    assert data(CHECKOUT) <= data(site)


def test_commands_without_a_stack_need_no_configuration_and_write_nothing(user: User) -> None:
    assert user.run("--version").stdout == "stepwatch 0.1.0\n"
    assert user.run("--help").stdout.startswith("usage: stepwatch ")
    reference = user.run("config", "--defaults").stdout
    assert "TargetDown" in reference
    assert user.run("config").stdout == reference
    limits = user.run("alerts")
    [runbook] = re.findall(r"^Each built-in alert has a heading in (.+)$", limits.stdout, re.MULTILINE)
    assert Path(runbook).read_text() == (CHECKOUT / "docs/runbook.md").read_text()
    seen = user.run("inspect", str(CHECKOUT / "tests/logs/verl/healthy.log"))
    assert "verl" in seen.stdout, seen.stderr
    status = user.run("status")
    assert (status.returncode, status.stdout) == (
        3,
        "Stepwatch is not running. `stepwatch up` starts it.\n",
    )

    assert not list(user.home.iterdir())


def test_the_first_up_writes_default_settings_with_the_commands_of_an_installation(user: User) -> None:
    done = user.run("up", **NO_PROGRAM)

    assert done.returncode == 2
    assert done.stdout.startswith(f"Wrote the default settings to {user.config}.\nPlain processes, not ")
    settings = user.config.read_text()
    assert f'  path: "{user.state}/runs"\n' in settings
    assert "`stepwatch up --runs folder`" in settings
    assert "`stepwatch config --explain alerts.KL`" in settings
    assert not re.search("make |docker", settings)
    for page in re.findall(r"/\S+\.md", settings):
        assert Path(page).is_file()

    user.config.write_text("runs: {path: logs}\n")
    assert "Wrote" not in user.run("up", **NO_PROGRAM).stdout
    assert user.config.read_text() == "runs: {path: logs}\n"


def test_a_mistake_is_reported_with_the_users_file_and_its_line(user: User) -> None:
    user.run("up", **NO_PROGRAM)
    lines = user.config.read_text().count("\n")
    with user.config.open("a") as file:
        file.write("intervals: {runs: soon}\n")

    done = user.run("up", **NO_PROGRAM)

    assert done.returncode == 2
    assert done.stderr.startswith(f"{user.config}:{lines + 1}: intervals.runs: ")


def test_settings_and_state_follow_the_variables_of_xdg(user: User, tmp_path: Path) -> None:
    folders = {"XDG_CONFIG_HOME": str(tmp_path / "settings"), "XDG_STATE_HOME": str(tmp_path / "state")}

    user.run("up", **NO_PROGRAM, **folders)

    assert (tmp_path / "settings/stepwatch/config.yaml").is_file()
    assert (tmp_path / "state/stepwatch/logs").is_dir()
    assert not list(user.home.iterdir())


def test_the_demo_then_real_logs_run_natively_and_down_leaves_nothing_running(
    user: User, tmp_path: Path
) -> None:
    user.variables = {**programs(), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    user.run("up", **NO_PROGRAM)
    user.use_free_ports()

    done = user.run("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "`stepwatch status` shows its state, `stepwatch down` stops it." in done.stdout
    assert http_client.read(f"{user.url('prometheus')}/-/ready") is not None
    alerts = f"{user.url('alertmanager')}/api/v2/alerts"
    eventually(lambda: '"Watchdog"' in _all(alerts))
    eventually(lambda: "4 running" in user.run("status").stdout)
    assert user.run("status").returncode == 0
    rules = (user.state / "rendered/prometheus/generated/rules/gpu.yml").read_text()
    assert "`stepwatch gpu-release`" in rules
    assert "`make " not in rules
    [runbook] = {alert["annotations"]["runbook_url"].partition("#")[0] for alert in json.loads(_all(alerts))}
    assert Path(runbook).is_file()

    logs = user.home / "my logs"
    shutil.copytree(CHECKOUT / "tests/logs/verl", logs)
    done = user.run("up", "--runs", str(logs))
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: query(user.url("prometheus"), 'rl_run_info{run="healthy"}'))
    stranger = User(user.home.with_name("stranger"), user.place)
    assert stranger.run("status").returncode == 3
    assert stranger.run("down").stdout == "Stepwatch is not running.\n"

    assert user.processes()
    done = user.run("down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not user.processes()
    assert {folder.name for folder in user.home.iterdir()} == {".config", ".local", "my logs"}
    assert list((tmp_path / "cache/stepwatch/templates").iterdir())


def _all(alerts: str) -> str:
    return http_client.read(alerts) or "[]"
