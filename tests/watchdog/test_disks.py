"""What the watchdog makes of a file system."""

from __future__ import annotations

import errno
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
