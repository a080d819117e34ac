from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from stepwatch import packages, programs
from stepwatch.programs import ProgramError
from tests.real.tools import unavailable


def program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(name="machine")
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without apt, on which `bin` is the whole PATH and nothing is cached."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for wanted in programs.WANTED.values():
        monkeypatch.delenv(wanted.variable, raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("prometheus, version 2.42.0+ds (branch: debian/sid, revision: 2.42.0+ds-5)", (2, 42, 0)),
        ("prometheus, version 3.13.2 (branch: HEAD, revision: 1ab2)", (3, 13, 2)),
        ("alertmanager, version 0.31.0-rc.1 (branch: HEAD)", (0, 31, 0)),
        ("grafana version 12.1", (12, 1, 0)),
        ("Version 10.4.2 (commit: 22c2, branch: HEAD)", (10, 4, 2)),
        ("prometheus, version  (branch: , revision: unknown)", None),
        ("something else", None),
    ],
)
def test_the_version_is_read_from_what_a_program_tells(
    tmp_path: Path, says: str, version: programs.Version | None
) -> None:
    assert programs.read_version(program(tmp_path, "it", says)) == version


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "it").write_text("not a program")

    assert programs.read_version(tmp_path / "it") is None
    assert programs.read_version(tmp_path / "missing") is None


def test_a_program_on_path_is_taken_if_it_is_new_enough(machine: Path) -> None:
    path = program(machine / "bin", "prometheus", "prometheus, version 2.42.0 (x)")

    assert programs.find("prometheus") == programs.Program(path, (2, 42, 0))


def test_alertmanager_is_found_under_the_name_that_the_distribution_gives_it(machine: Path) -> None:
    path = program(machine / "bin", "prometheus-alertmanager", "alertmanager, version 0.28.1 (x)")

    assert programs.obtain("alertmanager").path == path


def test_the_variable_wins_over_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(machine / "bin", "promtool", "promtool, version 2.50.0 (x)")
    mine = program(machine / "mine", "promtool-3", "promtool, version 3.1.0 (x)")
    monkeypatch.setenv("STEPWATCH_PROMTOOL", str(mine))

    assert programs.obtain("promtool") == programs.Program(mine, (3, 1, 0))


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("prometheus, version 2.41.9 (x)", "version 2.41.9"),
        ("no idea", "no program that tells a version"),
    ],
)
def test_a_variable_that_names_the_wrong_program_is_refused(
    machine: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: str
) -> None:
    mine = program(machine / "mine", "it", says)
    monkeypatch.setenv("STEPWATCH_PROMETHEUS", str(mine))

    with pytest.raises(ProgramError) as refusal:
        programs.find("prometheus")

    assert str(refusal.value) == (
        f"STEPWATCH_PROMETHEUS: {mine} is {found}. Expected: Prometheus 2.42.0 or later. "
        "Cure: name another one, or unset the variable and let Stepwatch look for it."
    )


def test_an_old_program_and_no_packages_are_named_with_the_cure(machine: Path) -> None:
    old = program(machine / "bin", "alertmanager", "alertmanager, version 0.24.0 (x)")

    assert programs.find("alertmanager") is None
    with pytest.raises(ProgramError) as refusal:
        programs.obtain("alertmanager")

    assert str(refusal.value) == (
        f"Alertmanager 0.25.0 or later is needed. Found: {old} 0.24.0; "
        "this machine has no apt-get to take it from. "
        "Cure: put the official release on PATH, or set STEPWATCH_ALERTMANAGER to its program."
    )


def test_a_package_that_is_too_old_is_refused(machine: Path) -> None:
    unpacked = packages.tools_folder() / "prometheus-2.31.2+ds1" / "usr/bin"
    program(unpacked, "prometheus", "prometheus, version 2.31.2 (x)")

    with pytest.raises(ProgramError, match=r"Found: .*2\.31\.2; the distribution packages 2\.31\.2\. Cure: "):
        programs.obtain("prometheus")


def test_the_distribution_s_package_is_unpacked_and_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("apt-get"):
        unavailable("the distribution has no apt-get")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    server = programs.obtain("prometheus")

    tools = packages.tools_folder()
    assert tools in server.path.parents
    assert programs.find("promtool") is not None
    assert [path.name.split("-")[0] for path in tools.iterdir()] == ["prometheus"]
    pages = Path(server.options[0].removeprefix("--web.local-assets="))
    assert pages.is_dir()
    assert not [link for link in pages.rglob("*") if link.is_symlink() and not link.exists()]


@pytest.fixture(name="broken_apt")
def _broken_apt(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose apt has no package lists and cannot get any."""
    calls = machine / "calls"
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        script = program(machine / "bin", name, "")
        script.write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\necho "E: no luck" >&2\nexit 100\n')
    monkeypatch.setenv("PATH", f"{machine}/bin:/usr/bin:/bin")
    return calls


def test_a_failed_download_leaves_nothing_behind_and_tells_why(
    broken_apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(packages.PackageError) as problem:
        packages.unpack("prometheus", "prometheus")

    assert str(problem.value) == "apt-cache depends: E: no luck. Cure: sudo apt-get update"
    assert list(packages.tools_folder().iterdir()) == []


def test_root_gets_the_package_lists_first_if_there_are_none(
    broken_apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(packages.PackageError, match="apt-get update: E: no luck"):
        packages.unpack("prometheus", "prometheus")

    assert broken_apt.read_text().splitlines()[-1] == "apt-get update -qq"


def test_files_that_only_root_may_place_are_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "usr/share/prometheus/alertmanager/nowhere-else.tmpl"
    template.parent.mkdir(parents=True)
    template.touch()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(shutil, "copyfile", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)

    [(file, place)] = packages.missing_files(tmp_path)
    assert (file, place) == (template, Path("/usr/share/prometheus/alertmanager/nowhere-else.tmpl"))
    with pytest.raises(packages.PackageError) as problem:
        packages._place([(file, place)])

    assert str(problem.value) == (
        f"its package reads {place}, which only root may write. "
        f"Cure: sudo install -D -m 644 -t {place.parent} {template.parent}/*.tmpl"
    )
