"""What the watchdog makes of a file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Event

import pytest

from exporter.watchdog import disks
from exporter.watchdog.disks import RESERVE, Folder, Look, Space
from tests.real.disk import fill, small_disk
from tests.real.waiting import eventually

ROOMY = Space("/data", "/dev/vdb", "ext4", 100 << 30, 50 << 30, 1000000, 900000)


def folder(part: str, error: int = 0, **other: object) -> Folder:
    """A folder that was looked at."""
    made = Folder(part, f"/data/{part}")
    made.look, made._busy = Look(ROOMY._replace(**other), error), False  # type: ignore[arg-type]
    return made


def faults(*folders: Folder) -> list[tuple[str, str]]:
    return [(found.fault, found.name) for found in disks.findings(folders)]


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_file_system_that_is_full_is_found_by_writing_and_nothing_is_left_behind(
    tmp_path: Path, kind: str
) -> None:
    with small_disk(tmp_path / "disk", kind) as disk:
        before = disks.look(str(disk))
        fill(disk / "ballast")
        after = disks.look(str(disk))
        assert {path.name for path in disk.iterdir()} - {"lost+found"} == {"ballast"}

    assert (before.error, after.error) == (0, errno.ENOSPC)
    assert before.space.mountpoint == str(tmp_path / "disk")
    assert before.space.fstype == kind
    assert before.space.free > RESERVE > after.space.free


def test_a_file_system_without_inodes_is_full_while_it_has_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "tmpfs", "nr_inodes=200") as disk:
        for number in range(150):
            (disk / str(number)).touch()
        part = Folder("prometheus", str(disk))
        part.look, part._busy = disks.look(str(disk)), False
        (found,) = disks.findings([part])

    assert found.fault == "disk_full"
    assert "inodes free of 200" in found.description


def test_a_file_system_that_was_made_read_only_is_reported(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "tmpfs", "ro") as disk:
        assert disks.look(str(disk)).error == errno.EROFS


def test_parts_on_one_file_system_are_one_finding_that_says_what_each_does_without_it() -> None:
    full = [folder(part, errno.ENOSPC, free=0) for part in ("prometheus", "alertmanager")]
    (found,) = disks.findings([*full, folder("grafana", mountpoint="/other")])

    assert (found.fault, found.name, found.parts) == ("disk_full", "/data", ("prometheus", "alertmanager"))
    assert found.description == (
        "/data: 0 B free of 100.0 GiB. Prometheus stores no samples, so no run is monitored; Alertmanager "
        "loses silences and sent notifications if it restarts. First: free space there; no restart is "
        "needed."
    )


@pytest.mark.parametrize(
    ("error", "other", "fault"),
    [
        (0, {}, None),
        (0, {"free": RESERVE}, None),
        (0, {"free": RESERVE - 1}, "disk_full"),
        (0, {"files": 0, "files_free": 0}, None),
        (0, {"files_free": 99}, "disk_full"),
        (errno.EDQUOT, {}, "disk_full"),
        (errno.EROFS, {}, "disk_read_only"),
        (errno.EIO, {}, "disk_failed"),
    ],
)
def test_what_is_wrong_with_a_file_system(error: int, other: dict[str, int], fault: str | None) -> None:
    assert faults(folder("prometheus", error, **other)) == ([(fault, "/data")] if fault else [])


def test_another_users_folder_is_judged_by_what_its_file_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(os, "open", refused)
    assert disks._trial(str(tmp_path)) == 0


def test_a_folder_that_is_still_to_come_is_judged_by_the_one_above(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "tmpfs") as disk:  # nothing else changes its free space
        looked = disks.look(str(disk / "later/on"))
        assert looked == disks.look(str(disk))

    assert looked.space.mountpoint == str(tmp_path / "disk")


def test_one_file_system_that_hangs_is_reported_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, look = Event(), disks.look

    def hanging(path: str) -> Look:
        if path == "/hangs":
            hung.wait()
        return look(path)

    monkeypatch.setattr(disks, "look", hanging)
    monkeypatch.setattr(disks, "HANG_SECONDS", 0.5)
    folders = [Folder("prometheus", "/hangs"), Folder("grafana", str(tmp_path))]
    for each in folders:
        each.start()
    eventually(lambda: faults(*folders) == [("disk_hung", "/hangs")])
    eventually(lambda: folders[1].look)
    hung.set()
