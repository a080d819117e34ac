"""Where the tests' programs come from: the tool cache, the official release, a package or a build with Go."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stepwatch.system import programs, releases
from stepwatch.system.environment import CHECKOUT
from tests.mirror import Mirror
from tests.real import build, tools

NEWEST = build.version("prometheus")


@pytest.fixture(name="path", autouse=True)
def _path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty tool cache; the folder is its whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(releases, "_silent", {})
    monkeypatch.setenv("CI", "true")  # what cannot be had fails the test, rather than skip it
    return folder


@pytest.fixture(name="mirror")
def _mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    with Mirror() as mirror:
        monkeypatch.setenv("STEPWATCH_RELEASES", mirror.url)
        yield mirror


def test_without_a_release_and_without_go_tests_skip_with_the_reason_and_fail_in_ci(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask, version = tools.prometheus.__wrapped__, NEWEST.rpartition(".")[0]
    reason = f"prometheus {version}: Go 1.26 or later is needed to build it, found: none"

    with pytest.raises(RuntimeError, match=reason):
        ask(version)
    monkeypatch.delenv("CI")
    with pytest.raises(unittest.SkipTest, match=reason):
        ask(version)
    assert "sha256sums.txt: 404 Not Found" in capsys.readouterr().err


def test_tests_run_the_releases_that_the_product_takes() -> None:
    natively = {name: wanted.tool.release.version for name, wanted in programs.WANTED.items()}
    images = {
        service["image"].rpartition(":-")[2].rstrip("}")
        for service in yaml.safe_load((CHECKOUT / "compose.yaml").read_text())["services"].values()
    }

    for name in ("prometheus", "alertmanager"):
        assert build.version(name) == natively[name]
        assert f"prom/{name}:v{build.version(name)}" in images
    assert f"prom/node-exporter:v{build.version('node_exporter')}" in images
