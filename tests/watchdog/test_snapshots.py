"""Alertmanager's silences and sent notifications outlive a kill on a full disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.watchdog import disks
from exporter.watchdog.disks import Folder
from stepwatch.system.environment import CHECKOUT
from tests.real import AlertmanagerServer
from tests.real.disk import fill, small_disk
from tests.real.silences import comments, silence
from tests.real.waiting import eventually


@pytest.fixture(name="server", params=["0.25", "0.31"])
def _server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AlertmanagerServer]:
    """An Alertmanager with its data on a small disk, started as ours."""
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    server = AlertmanagerServer(request.param, tmp_path, options=("--data.maintenance-interval=1s",))
    words = [word for word in server.command if not word.startswith("--storage.path=")]
    disk = tmp_path / "disk"
    server.command = ["sh", str(CHECKOUT / "alertmanager/start.sh"), str(disk), *words]
    server.command.append(f"--storage.path={disk}")
    with small_disk(disk, "tmpfs"), server:
        yield server


def test_a_silence_outlives_a_kill_on_a_full_disk(
    server: AlertmanagerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"

    def cut_short() -> bool:
        """Whether a snapshot had no room: 0.31 has replaced the last one by it, 0.25 has left it behind."""
        return any(not file.stat().st_size for file in disk.glob("silences*"))

    monkeypatch.setattr(disks, "SNAPSHOT_SECONDS", 3)
    monkeypatch.setattr(disks, "INTERVAL_SECONDS", 0.5)
    silence(server.url, "run", "a", "kept")
    eventually((disk / "silences").exists)
    eventually(lambda: (disk / "silences").stat().st_size)
    Folder("alertmanager", str(disk)).start()
    eventually((disk / "silences.kept").exists)
    fill(disk / "ballast")
    eventually(cut_short)

    for _ in range(2):  # what it returned to is cut short as well
        server.kill()
        server.start()
        assert comments(server.url) == ["kept"]
        eventually(cut_short)

    (disk / "ballast").unlink()
    whole = (disk / "silences.kept").stat()
    eventually(lambda: (disk / "silences").stat().st_size == whole.st_size)
    eventually(lambda: (disk / "silences.kept").stat().st_ino != whole.st_ino)


def test_only_old_empty_temporary_files_of_alertmanager_are_removed(tmp_path: Path) -> None:
    now = time.time()
    gone = ["nflog.1a2b", "silences.4d026b582ecce3d0"]
    kept = ["nflog", "silences", "nflog.xyz", "silences.12.bak", "other.1a2b"]
    for name in [*gone, *kept, "nflog.77", "silences.ab"]:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - 61, now - 61))
    (tmp_path / "silences.ab").write_text("a snapshot")
    os.utime(tmp_path / "silences.ab", (now - 61, now - 61))
    os.utime(tmp_path / "nflog.77", (now - 59, now - 59))
    (tmp_path / "nflog.beef").symlink_to(tmp_path / "nflog")

    assert disks.remove_leftovers(str(tmp_path), now) == len(gone)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*kept, "nflog.77", "silences.ab", "nflog.beef"}
