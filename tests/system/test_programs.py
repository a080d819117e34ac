from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.system import programs, releases
from stepwatch.system.programs import ProgramError
from tests.mirror import Mirror, standin, stem, tarball
from tests.real import Tool, alertmanager
from tests.real.build import version
from tests.real.tools import unavailable

# Both as the tests' own modules pin them: here they are compared with those of compose.yaml.
NEWEST, ALERTMANAGER = version("prometheus"), version("alertmanager")
NUMBERS = tuple(map(int, NEWEST.split(".")))


def program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def bare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing cached, no release to be reached, and no program named by a variable."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("STEPWATCH_RELEASES", "http://127.0.0.1:9")
    monkeypatch.setattr(releases, "_silent", {})
    for wanted in programs.WANTED.values():
        monkeypatch.delenv(wanted.variable, raising=False)


def without_ours(folder: Path) -> Path:
    """Fill a folder with links to this machine's programs, but for those that it is to find nowhere."""
    folder.mkdir()
    ours = {name for wanted in programs.WANTED.values() for name in wanted.names}
    for place in map(Path, os.defpath.split(os.pathsep)):
        for program in place.glob("*"):
            if program.name not in ours and not (link := folder / program.name).is_symlink():
                link.symlink_to(program)
    return folder


@pytest.fixture(name="machine")
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without apt or a network, on which `bin` is the whole PATH and nothing is cached."""
    bare(tmp_path, monkeypatch)
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
def test_the_version_is_read_from_what_a_program_reports(
    tmp_path: Path, says: str, version: programs.Version | None
) -> None:
    assert programs.read_version(program(tmp_path, "it", says)) == version


def obtained(name: str) -> tuple[programs.Program, list[str]]:
    said: list[str] = []
    return programs.obtain(name, said.append), said


def test_alertmanager_is_found_under_the_name_that_the_distribution_gives_it(machine: Path) -> None:
    path = program(machine / "bin", "prometheus-alertmanager", "alertmanager, version 0.28.1 (x)")

    assert obtained("alertmanager")[0].path == path


def test_the_variable_wins_over_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(machine / "bin", "promtool", "promtool, version 2.50.0 (x)")
    mine = program(machine / "mine", "promtool-3", "promtool, version 3.1.0 (x)")
    monkeypatch.setenv("STEPWATCH_PROMTOOL", str(mine))

    program_, said = obtained("promtool")

    assert program_ == programs.Program(mine, (3, 1, 0))
    assert said == [f"promtool 3.1.0: {mine}, named by STEPWATCH_PROMTOOL"]


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("prometheus, version 2.41.9 (x)", "version 2.41.9"),
        ("no idea", "not a program that prints its version"),
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
        "Fix: name another one, or unset the variable and let Stepwatch look for it."
    )


def test_an_old_program_and_no_packages_are_named_with_the_fix(machine: Path) -> None:
    old = program(machine / "bin", "alertmanager", "alertmanager, version 0.24.0 (x)")

    assert programs.find("alertmanager") is None
    with pytest.raises(ProgramError) as refusal:
        obtained("alertmanager")

    assert str(refusal.value) == (
        f"Alertmanager 0.25.0 or later is needed. Found: {old} 0.24.0; "
        "this machine has no apt-get to install it. "
        "Fix: put the official release on PATH, or set STEPWATCH_ALERTMANAGER to its program."
    )


def unpacked(machine: Path, version: str, *, candidate: str | None = None) -> Path:
    """A package that was unpacked before, on a machine whose apt would install the candidate version."""
    apt = program(machine / "bin", "apt-cache", "")
    apt.write_text(f"#!/bin/sh\necho 'prometheus:\n  Candidate: {candidate or f'{version}+ds'}'\n")
    folder = releases.tools_folder() / f"prometheus-{version}+ds" / "usr/bin"
    return program(folder, "prometheus", f"prometheus, version {version} (x)")


def test_a_package_that_is_too_old_is_refused(machine: Path) -> None:
    unpacked(machine, "2.31.2")

    with pytest.raises(ProgramError, match=r"Found: .*2\.31\.2; the distribution packages 2\.31\.2\. Fix: "):
        obtained("prometheus")


def test_the_distribution_s_package_is_unpacked_and_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("apt-get"):
        unavailable("the distribution has no apt-get")
    bare(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(without_ours(tmp_path / "bin")))

    server, said = obtained("prometheus")

    assert "Connection refused" in said[1]
    assert said[2].endswith("the distribution's package (on PATH: none)")
    tools = releases.tools_folder()
    assert tools in server.path.parents
    assert programs.find("promtool") is not None
    assert [path.name.split("-")[0] for path in tools.iterdir()] == ["prometheus"]
    pages = Path(server.options[0].removeprefix("--web.local-assets="))
    assert pages.is_dir()
    assert not [link for link in pages.rglob("*") if link.is_symlink() and not link.exists()]


@pytest.fixture(name="mirror")
def _mirror(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    with Mirror() as mirror:
        monkeypatch.setenv("STEPWATCH_RELEASES", mirror.url)
        yield mirror


def publish(mirror: Mirror, server: str, tool: str, version: str) -> str:
    top = stem(server, version)
    mirror.publish(server, version, tarball(top, {name: standin(name, version) for name in (server, tool)}))
    return top


def test_the_official_release_is_downloaded_once_with_its_tool(machine: Path, mirror: Mirror) -> None:
    top = publish(mirror, "prometheus", "promtool", NEWEST)
    folder = releases.tools_folder() / top

    first, said = obtained("prometheus")
    asked = len(mirror.asked)
    again, words = obtained("prometheus")

    assert first == again == programs.Program(folder / "prometheus", NUMBERS)
    assert said[0] == (
        f"Prometheus 2.42.0 or later is not here (found: none on PATH): getting the official {NEWEST}."
    )
    assert words == [f"Prometheus {NEWEST}: {folder}/prometheus, the official release (on PATH: none)"]
    assert programs.find("promtool") == programs.Program(folder / "promtool", NUMBERS)
    assert len(mirror.asked) == asked


def test_a_program_on_path_goes_before_the_release_and_says_so(machine: Path, mirror: Mirror) -> None:
    path = program(machine / "bin", "prometheus", "prometheus, version 2.45.0 (x)")

    assert obtained("prometheus") == (
        programs.Program(path, (2, 45, 0)),
        [f"Prometheus 2.45.0: {path}, on PATH"],
    )
    assert mirror.asked == []


def test_one_on_path_that_is_too_old_is_named_beside_the_release(machine: Path, mirror: Mirror) -> None:
    old = program(machine / "bin", "alertmanager", "alertmanager, version 0.24.0 (x)")
    publish(mirror, "alertmanager", "amtool", ALERTMANAGER)

    assert obtained("alertmanager")[1][-1].endswith(f"the official release (on PATH: {old} 0.24.0)")


def test_a_tool_of_another_version_than_its_server_is_not_taken(machine: Path, mirror: Mirror) -> None:
    publish(mirror, "prometheus", "promtool", NEWEST)
    obtained("prometheus")
    program(machine / "bin", "prometheus", "prometheus, version 2.45.0 (x)")

    assert programs.find("promtool") is None

    tool = program(machine / "bin", "promtool", "promtool, version 2.45.0 (x)")
    assert programs.find("promtool") == programs.Program(tool, (2, 45, 0))


def test_a_tool_beside_a_named_server_is_found(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = program(machine / "mine", "alertmanager", "alertmanager, version 0.30.0 (x)")
    tool = program(machine / "mine", "amtool", "amtool, version 0.30.0 (x)")
    program(machine / "bin", "amtool", "amtool, version 0.26.0 (x)")
    monkeypatch.setenv("STEPWATCH_ALERTMANAGER", str(mine))

    assert programs.find("amtool") == programs.Program(tool, (0, 30, 0))


def test_a_silent_release_host_is_not_asked_again_once_the_package_is_here(
    machine: Path, mirror: Mirror
) -> None:
    server = unpacked(machine, "2.42.0")

    assert obtained("prometheus")[1] == [
        f"Prometheus 2.42.0: {server}, the distribution's package (on PATH: none)"
    ]
    assert mirror.asked == []


def test_another_distribution_s_package_in_the_cache_is_not_taken(machine: Path, mirror: Mirror) -> None:
    ours = unpacked(machine, "2.42.0")
    unpacked(machine, "2.53.3", candidate="2.42.0+ds")  # a shared home folder, and unpacked last

    assert obtained("prometheus")[0] == programs.Program(
        ours, (2, 42, 0), (f"--web.local-assets={ours.parents[2]}/usr/share/prometheus/web/",)
    )
    unpacked(machine, "2.53.3", candidate="2.45.0+ds")
    assert programs.find("prometheus") is None


@pytest.fixture(name="real")
def _real() -> Tool:
    """The newest Alertmanager, found before a test makes this machine a bare one."""
    return alertmanager("0.31")


@pytest.mark.e2e
def test_the_real_programs_work_from_a_release(real: Tool, machine: Path, mirror: Mirror) -> None:
    files = {"alertmanager": real.server.read_bytes(), "amtool": real.tool.read_bytes()}
    mirror.publish("alertmanager", ALERTMANAGER, tarball(stem("alertmanager", ALERTMANAGER), files))

    assert obtained("alertmanager")[0].version == (0, 31, 1)
    found = programs.find("amtool")
    assert found.path.parent.name == stem("alertmanager", ALERTMANAGER)


@pytest.fixture(name="broken_apt")
def _broken_apt(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose apt has no package lists and cannot get any."""
    calls = machine / "calls"
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        script = program(machine / "bin", name, "")
        script.write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\necho "E: no luck" >&2\nexit 100\n')
    monkeypatch.setenv("PATH", f"{machine}/bin:/usr/bin:/bin")
    return calls


def test_a_failed_download_leaves_nothing_behind_and_reports_why(
    broken_apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(programs.PackageError) as problem:
        programs.unpack_package("prometheus", "prometheus")

    assert str(problem.value) == "apt-cache depends: E: no luck. Fix: sudo apt-get update"
    assert list(releases.tools_folder().iterdir()) == []


def test_root_gets_the_package_lists_first_if_there_are_none(
    broken_apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(programs.PackageError, match="apt-get update: E: no luck"):
        programs.unpack_package("prometheus", "prometheus")

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

    [(file, place)] = programs.missing_files(tmp_path)
    assert (file, place) == (template, Path("/usr/share/prometheus/alertmanager/nowhere-else.tmpl"))
    with pytest.raises(programs.PackageError) as problem:
        programs.place_files([(file, place)])

    assert str(problem.value) == (
        f"its package reads {place}, which only root may write. "
        f"Fix: sudo install -D -m 644 -t {place.parent} {template.parent}/*.tmpl"
    )
