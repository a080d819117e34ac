from __future__ import annotations

from pathlib import Path

import pytest

from stepwatch.config import Config
from stepwatch.deploy.native import installed
from stepwatch.deploy.native.state import State
from tests.native.release import unpacked_release


def test_an_unpacked_release_on_path_is_found_with_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(unpacked_release(tmp_path)))

    found = installed.find_grafana()

    assert found == installed.Grafana((f"{tmp_path}/bin/grafana", "server"), tmp_path)


def test_a_grafana_that_cannot_load_the_dashboards_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(unpacked_release(tmp_path, version="9.5.21")))
    assert installed.find_grafana() is None

    monkeypatch.setenv("PATH", str(tmp_path))
    assert installed.find_grafana() is None


def test_only_the_file_of_the_password_is_named(tmp_path: Path) -> None:
    place = State(tmp_path)
    settings = installed.grafana_environment(Config(), place, tmp_path / "data/grafana")

    assert settings["GF_SECURITY_ADMIN_PASSWORD"] == f"$__file{{{tmp_path}/credentials/password}}"


def test_no_one_gets_in_without_a_password_and_nothing_is_reported_home(tmp_path: Path) -> None:
    settings = installed.grafana_environment(Config(), State(tmp_path), tmp_path / "data/grafana")

    for name in ("AUTH_ANONYMOUS_ENABLED", "USERS_ALLOW_SIGN_UP", "ANALYTICS_REPORTING_ENABLED"):
        assert settings[f"GF_{name}"] == "false"
    assert settings["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_every_variable_that_provisioning_asks_for_is_set(tmp_path: Path) -> None:
    settings = installed.grafana_environment(Config(), State(tmp_path), tmp_path / "data/grafana")
    templates = Path(__file__).parents[2] / "grafana/templates/provisioning"

    asked = {
        word.partition("}")[0]
        for file in templates.rglob("*.j2")
        for word in file.read_text().split("${")[1:]
        if word[0].isupper()
    }

    assert asked
    assert asked <= set(settings)
