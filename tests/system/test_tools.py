"""Where the tests' programs come from: the tool cache, the official release, a package or a build with Go."""

from __future__ import annotations

import os
import unittest
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stepwatch.system import programs, releases
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.releases import tools_folder
from tests.mirror import ARCHITECTURE, Mirror, standin, stem, tarball
from tests.real import build, tools

NEWEST = build.version("prometheus")
PROGRAMS = ("prometheus", "promtool")

GO = """#!/bin/sh
case $1 in
env) echo go1.26.0 ;;
build) echo '#!/bin/sh' > "$5prometheus" ;;
esac
"""
"""Takes no minutes; `go build -ldflags STAMP -o FOLDER/ tool` is how it is called."""


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


@pytest.fixture(name="go")
def _go(path: Path) -> None:
    (path / "go").write_text(GO)
    (path / "go").chmod(0o755)
    for name in ("env", "sh"):
        real = next(folder for folder in os.defpath.split(":") if (Path(folder) / name).exists())
        (path / name).symlink_to(Path(real) / name)


def publish(mirror: Mirror, version: str, *, sha256: str | None = None) -> None:
    files = {name: standin(name, version) for name in PROGRAMS}
    mirror.publish("prometheus", version, tarball(stem("prometheus", version), files), sha256=sha256)


def test_a_program_is_taken_from_the_official_release_once(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(mirror, NEWEST)

    folder = tools.newest("prometheus")
    said, asked = capsys.readouterr().err, len(mirror.asked)

    assert folder == tools_folder() / f"prometheus-{NEWEST}.linux-{ARCHITECTURE}"
    assert programs.read_version(folder / "promtool") == tuple(map(int, NEWEST.split(".")))
    assert said.startswith(f"prometheus-{NEWEST}: downloading the official release, once.\n")
    assert tools.newest("prometheus") == folder
    assert (capsys.readouterr().err, len(mirror.asked)) == ("", asked)


@pytest.mark.usefixtures("go")
def test_a_release_that_cannot_be_downloaded_is_named_in_one_line_and_built_with_go_once(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(mirror, NEWEST, sha256="a" * 64)

    folder = tools.newest("prometheus")
    said, asked = capsys.readouterr().err, len(mirror.asked)

    assert folder == tools_folder() / f"prometheus-{NEWEST}" / "bin"
    assert [path.name for path in folder.iterdir()] == ["prometheus"]
    (line,) = (line for line in said.splitlines() if "no official release" in line)
    assert line.startswith(f"prometheus-{NEWEST}: no official release (")
    assert f"expected {'a' * 64}. Fix: try again" in line
    assert line.endswith("; building it with Go, once (minutes).")
    assert tools.newest("prometheus") == folder
    assert (capsys.readouterr().err, len(mirror.asked)) == ("", asked)
    assert [path.name for path in tools_folder().iterdir() if not path.name.startswith(".")] == [
        f"prometheus-{NEWEST}"
    ]


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


def packaged(version: str) -> Path:
    """A package that was unpacked before, in the version that apt would install."""
    apt = Path(os.environ["PATH"]) / "apt-cache"
    apt.write_text(f"#!/bin/sh\necho '  Candidate: {version}+ds'\n")
    apt.chmod(0o755)
    folder = tools_folder() / f"prometheus-{version}+ds" / "usr/bin"
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        (folder / name).write_bytes(standin(name, version))
        (folder / name).chmod(0o755)
    return folder


def test_the_oldest_version_is_the_distribution_s_package(mirror: Mirror) -> None:
    folder = packaged("2.42.0")

    found = tools.prometheus.__wrapped__("2.42")

    assert (found.version, found.server, found.tool) == (
        "2.42.0",
        folder / "prometheus",
        folder / "promtool",
    )
    assert mirror.asked == []


@pytest.mark.parametrize("other", [None, "2.53.3"], ids=["no package", "another version"])
def test_the_oldest_version_is_the_official_release_where_the_distribution_has_it_not(
    mirror: Mirror, other: str | None
) -> None:
    publish(mirror, "2.42.0")
    if other:
        packaged(other)

    found = tools.prometheus.__wrapped__("2.42")

    assert (found.version, found.options) == ("2.42.0", ())
    assert found.tool == tools_folder() / f"prometheus-2.42.0.linux-{ARCHITECTURE}" / "promtool"
    asked = len(mirror.asked)
    assert tools.prometheus.__wrapped__("2.42") == found
    assert len(mirror.asked) == asked


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
