from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import platform
import socket
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwatch.system import releases
from stepwatch.system.releases import Release, ReleaseError
from tests.mirror import Mirror, standin, stem, tarball
from tests.real import free_port
from tests.real.waiting import HANG_SECONDS, in_time

RELEASE = Release("prometheus", "3.13.2")
TOP = stem("prometheus", "3.13.2")
PROGRAMS = {name: standin(name, "3.13.2") for name in ("prometheus", "promtool")}


@pytest.fixture(name="mirror")
def _mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(releases, "_silent", {})
    with Mirror() as mirror:
        monkeypatch.setenv("STEPWATCH_RELEASES", mirror.url)
        yield mirror


def obtained() -> tuple[Path, str]:
    said: list[str] = []
    return releases.obtain(RELEASE, said.append), "\n".join(said)


def refusal() -> ReleaseError:
    """Why the release is not had; nothing of it may be left."""
    with pytest.raises(ReleaseError) as problem:
        obtained()
    tools = releases.tools_folder()
    assert not tools.exists() or list(tools.iterdir()) == []
    assert releases.kept(RELEASE) is None
    return problem.value


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def test_a_release_is_downloaded_checked_unpacked_and_kept(mirror: Mirror) -> None:
    mirror.publish("prometheus", "3.13.2", tarball(TOP, {**PROGRAMS, "docs/NOTICE": b"words"}))

    folder, said = obtained()

    assert folder == releases.tools_folder() / TOP == releases.kept(RELEASE)
    assert sorted(path.name for path in folder.iterdir()) == ["docs", "prometheus", "promtool"]
    assert (folder / "promtool").read_bytes() == PROGRAMS["promtool"]
    assert (folder / "promtool").stat().st_mode & 0o777 == 0o755
    assert f"downloading {mirror.url}/prometheus/prometheus/releases/download/v3.13.2/{TOP}.tar.gz" in said
    assert [path.name for path in releases.tools_folder().iterdir()] == [TOP]


def test_a_wrong_checksum_is_refused_with_both(mirror: Mirror) -> None:
    packed = tarball(TOP, PROGRAMS)
    mirror.publish("prometheus", "3.13.2", packed, sha256="a" * 64)

    problem = refusal()

    assert f"its SHA-256 is {hashlib.sha256(packed).hexdigest()}, expected {'a' * 64}" in problem.problem
    assert "do not use it" in problem.fix


def test_a_download_that_breaks_off_is_refused(mirror: Mirror) -> None:
    packed = tarball(TOP, PROGRAMS)
    mirror.publish("prometheus", "3.13.2", packed)
    mirror.cut = 10

    assert (
        f"the connection was closed early after {len(packed) - 10} of {len(packed)} bytes"
        in refusal().problem
    )


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        (tarball(TOP, PROGRAMS)[:99], "it cannot be unpacked"),
        (b"no archive at all", "it cannot be unpacked"),
        (b"", "it cannot be unpacked"),
        (tarball(TOP, {"promtool": b""}), f"it holds no {TOP}/prometheus"),
    ],
    # An archive holds the time it was made: a test named after it has another name in each process.
    ids=["torn", "no archive", "empty", "no program"],
)
def test_a_published_archive_that_is_broken_is_refused(mirror: Mirror, archive: bytes, problem: str) -> None:
    mirror.publish("prometheus", "3.13.2", archive)

    assert problem in refusal().problem


@pytest.mark.parametrize(
    "odd",
    [
        tarfile.TarInfo("../outside"),
        tarfile.TarInfo("/tmp/outside"),
        tarfile.TarInfo(f"{TOP}/../../outside"),
        tarfile.TarInfo("another/outside"),
        link(f"{TOP}/link", "/etc", tarfile.SYMTYPE),
        link(f"{TOP}/link", f"{TOP}/prometheus", tarfile.LNKTYPE),
        link(f"{TOP}/device", "", tarfile.CHRTYPE),
        link(f"{TOP}/pipe", "", tarfile.FIFOTYPE),
    ],
    ids=lambda entry: entry.name,
)
def test_an_archive_with_entries_that_lead_elsewhere_is_refused(mirror: Mirror, odd: tarfile.TarInfo) -> None:
    mirror.publish("prometheus", "3.13.2", tarball(TOP, PROGRAMS, odd))

    assert f"it holds {odd.name!r}, which is not a plain file below {TOP}/" in refusal().problem


def test_checksums_that_do_not_name_the_archive_are_refused(mirror: Mirror) -> None:
    mirror.publish("prometheus", "3.13.2", tarball(TOP, PROGRAMS))
    sums = next(path for path in mirror.files if path.endswith("sums.txt"))
    mirror.files[sums] = mirror.files[sums].replace(TOP.encode(), f"other-{TOP}".encode())

    assert f"sha256sums.txt names no {TOP}.tar.gz" in refusal().problem
    assert len(mirror.asked) == 1


def test_a_mirror_that_lacks_it_is_named_with_the_fix(mirror: Mirror) -> None:
    problem = refusal()

    assert (
        f"{mirror.url}/prometheus/prometheus/releases/download/v3.13.2/sha256sums.txt: 404" in problem.problem
    )
    assert problem.fix == "name a mirror that has it in STEPWATCH_RELEASES"


def test_a_full_disk_is_reported_with_the_folder(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.publish("prometheus", "3.13.2", tarball(TOP, PROGRAMS))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)

    problem = refusal()

    assert problem.problem == f"{releases.tools_folder()}: No space left on device"
    assert problem.fix.startswith("make room for")


@pytest.mark.parametrize("tools", ["file/cache", "locked"])
def test_a_cache_that_cannot_be_written_is_reported(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / tools))
    if tools == "locked":
        monkeypatch.setattr(tempfile, "TemporaryDirectory", _refused)

    with pytest.raises(ReleaseError, match=r"(Not a directory|Permission denied)\. Fix: make room for"):
        obtained()


def _refused(**_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_a_host_that_does_not_answer_costs_its_patience_once(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(releases, "_ANSWER_SECONDS", 0.5)
        monkeypatch.setenv("STEPWATCH_RELEASES", f"http://127.0.0.1:{silent.getsockname()[1]}")
        first = refusal()
        monkeypatch.setattr(releases, "_ANSWER_SECONDS", 60)
        second = refusal()

    assert "cannot be reached (" in first.problem
    assert str(first) == str(second)
    assert first.fix == "name a mirror in STEPWATCH_RELEASES"


def test_a_name_service_that_does_not_answer_is_not_waited_for(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(releases, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(releases, "_text", lambda *_: answered.wait(HANG_SECONDS) and "")
    begun = time.monotonic()

    assert "cannot be reached (no answer within 0.2 s)" in refusal().problem

    assert in_time(time.monotonic() - begun, 30)
    answered.set()


def test_a_closed_port_is_reported_at_once(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("STEPWATCH_RELEASES", f"http://127.0.0.1:{port}")

    assert refusal().problem == f"127.0.0.1:{port} cannot be reached (Connection refused)"


@pytest.mark.parametrize("place", ["ftp://mirror", "mirror", "http://", "file:///etc/passwd"])
def test_a_mirror_that_is_not_a_web_address_is_refused(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("STEPWATCH_RELEASES", place)

    assert refusal().problem == f"STEPWATCH_RELEASES is {place!r}"


@pytest.mark.parametrize(
    "place", ["http://me:geheim@mirror", "http://mirror/?token=geheim", "ftp://geheim@x"]
)
def test_a_mirror_with_a_secret_in_its_address_is_refused_without_showing_it(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("STEPWATCH_RELEASES", place)

    assert "geheim" not in str(refusal())


@pytest.mark.parametrize(
    ("machine", "expected"), [("aarch64", "arm64"), ("arm64", "arm64"), ("x86_64", "amd64")]
)
def test_the_archive_is_the_one_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, machine: str, expected: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)

    assert RELEASE.stem == f"prometheus-3.13.2.linux-{expected}"


def test_a_machine_without_a_release_is_reported(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "sparc64")

    assert refusal().problem == "no official release is known for linux on sparc64"


def test_two_downloads_at_a_time_end_in_one_release(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.publish("prometheus", "3.13.2", tarball(TOP, PROGRAMS))
    unpack = releases.unpack_archive

    def unpack_late(*arguments: Path) -> None:
        unpack(*arguments)
        if not releases.kept(RELEASE):
            monkeypatch.setattr(releases, "unpack_archive", unpack)
            obtained()

    monkeypatch.setattr(releases, "unpack_archive", unpack_late)

    assert obtained()[0] == releases.kept(RELEASE)
    assert len(list(releases.tools_folder().iterdir())) == 1


PARTS = st.sampled_from(["top", "..", ".", "a", "b c", "", "/", "top/..", "~"])


@pytest.mark.slow
@given(st.lists(PARTS, min_size=1, max_size=5).map("/".join))
@settings(max_examples=200, deadline=None)
def test_nothing_is_ever_written_outside_of_the_folder(name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        made.addfile(tarfile.TarInfo(name))
    with tempfile.TemporaryDirectory() as scratch:
        file, folder = Path(scratch) / "archive", Path(scratch) / "folder"
        file.write_bytes(packed.getvalue())
        folder.mkdir()
        with contextlib.suppress(releases.ArchiveError, OSError):
            releases.unpack_archive(file, folder, "top")
        assert set(Path(scratch).iterdir()) == {file, folder}
        assert {path.name for path in folder.iterdir()} <= {"top"}
