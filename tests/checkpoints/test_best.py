"""The folder of the best checkpoints: whole or not at all, and nothing lost that is not its own."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stepwatch.checkpoints.best import (
    COPY,
    DESCRIPTION,
    HARD_LINK,
    MARKER,
    REFLINK,
    BestFolder,
    NotKept,
)
from tests.checkpoints import saving
from tests.real.disk import SIZE_MIB, fill, small_disk
from tests.real.waiting import eventually

ROOT = Path(__file__).parents[2]

LINKED = (REFLINK, HARD_LINK)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "e"
    folder.mkdir()
    return folder


@contextmanager
def opened(folder: Path, *, says: tuple[str, ...] = ()) -> Iterator[BestFolder]:
    best = BestFolder(folder)
    with best.open() as news:
        assert tuple(news) == says
        yield best


def keep(folder: Path, name: str, score: float = 1.0) -> str:
    """Keep one; returns by which means."""
    with opened(folder) as best:
        return best.keep(saving.checkpoint(folder, name), score, "validation", "why").by


def listed(folder: Path) -> list[str]:
    """What is in the folder of the best, besides its own two files."""
    place = folder.with_name(f"{folder.name}.best")
    return sorted(each.name for each in place.iterdir() if each.name not in (MARKER, DESCRIPTION))


@pytest.mark.parametrize("save", [saving.verl, saving.transformers])
def test_a_kept_checkpoint_outlives_the_trainers_own(folder: Path, save: Callable[..., Path]) -> None:
    place = save(folder, 840)
    before, own = saving.contents(place), sorted(folder.iterdir())
    by = keep(folder, place.name, 0.5)
    kept = folder.with_name("e.best") / place.name
    assert (sorted(folder.iterdir()), by in LINKED) == (own, True)
    shutil.rmtree(place)

    assert saving.contents(kept) == before
    (said,) = json.loads((kept.parent / DESCRIPTION).read_text())["best"]
    assert said.pop("kept_at")
    assert said == {
        "checkpoint": place.name,
        "step": 840,
        "score": 0.5,
        "measure": "validation",
        "why": "why",
        "source": str(place),
        "by": by,
    }
    with opened(folder) as best:
        assert [each.name for each in best.kept] == [place.name]


ROTATION = """
import shutil, sys, time
sys.stdin.readline()
time.sleep(float(sys.argv[2]))
shutil.rmtree(sys.argv[1])
"""


def test_a_rotation_that_deletes_meanwhile_leaves_it_whole_or_not_at_all(folder: Path) -> None:
    chance, outcomes = random.Random(7), set()
    saving.verl(folder, 1, ranks=200, size=10)
    begun = time.monotonic()
    keep(folder, "global_step_1")
    took = time.monotonic() - begun
    for step in range(2, 42):
        place = saving.verl(folder, step, ranks=200, size=10)
        before, own = saving.contents(place), saving.checkpoint(folder, place.name)
        command = [sys.executable, "-c", ROTATION, str(place), str(chance.uniform(0, took))]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as rotation, opened(folder) as best:
            assert rotation.stdin
            rotation.stdin.write(b"\n")
            rotation.stdin.flush()
            with suppress(NotKept):
                best.keep(own, 1.0, "validation", "why")
        kept = folder.with_name("e.best") / place.name
        outcomes.add(kept.exists())
        assert not place.exists()
        assert not kept.exists() or saving.contents(kept) == before
        assert not any(name.startswith(".") for name in listed(folder))
        if outcomes == {True, False} and step > 12:
            break


KILLED = """
import os, sys, time
from pathlib import Path
from stepwatch.checkpoints.best import BestFolder
from tests.checkpoints import saving

at, folder = sys.argv[1], Path(sys.argv[2])
calls = 0

def stop(*of, **more):
    Path(folder.parent / "there").touch()
    time.sleep(600)

def third(*of, **more):
    global calls
    calls += 1
    return stop() if calls == 3 else link(*of, **more)

link = os.link
with BestFolder(folder).open():
    pass
best = BestFolder(folder)
with best.open():
    if at == "link":
        os.link = third
        import stepwatch.checkpoints.best as module
        module.fcntl.ioctl = lambda *of: (_ for _ in ()).throw(OSError(95, ""))
    elif at == "rename":
        Path.rename = stop
    else:
        best.drop = best.drop
        module = __import__("stepwatch.checkpoints.best", fromlist=["x"])
        module.shutil.rmtree = stop
        best.drop(best.kept[0])
    best.keep(saving.checkpoint(folder, "global_step_6"), 2.0, "validation", "why")
"""


@pytest.mark.parametrize(
    ("at", "meanwhile", "after"),
    [
        ("link", ["global_step_5"], ["global_step_5"]),
        ("rename", ["global_step_5"], ["global_step_5", "global_step_6"]),  # it was whole
        ("delete", [], []),
    ],
)
def test_after_a_kill_nothing_half_has_a_name_and_leftovers_go(
    folder: Path, at: str, meanwhile: list[str], after: list[str]
) -> None:
    saving.verl(folder, 5)
    saving.verl(folder, 6)
    keep(folder, "global_step_5")
    command = [sys.executable, "-c", KILLED, at, str(folder)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        eventually((folder.parent / "there").exists)
        process.send_signal(signal.SIGKILL)
    names = listed(folder)
    assert [name for name in names if not name.startswith(".")] == meanwhile
    assert len(names) == len(meanwhile) + 1

    with opened(folder) as best:
        assert sorted(each.name for each in best.kept) == after
    assert listed(folder) == after
    for name in after:
        assert saving.contents(folder.with_name("e.best") / name) == saving.contents(folder / name)


def test_a_trainer_that_writes_through_a_hard_link_is_found_out(folder: Path) -> None:
    saving.verl(folder, 5)
    if keep(folder, "global_step_5") == REFLINK:
        pytest.skip("this file system makes reflinks, through which nothing writes")
    saving.verl(folder, 5)  # opens the same files and regenerates them
    kept = folder.with_name("e.best") / "global_step_5"
    assert saving.contents(kept) == saving.contents(folder / "global_step_5")

    with opened(
        folder,
        says=(f"the trainer saved global_step_5 again, which wrote into {kept}; that is no longer kept.",),
    ) as best:
        assert best.kept == []
    assert listed(folder) == []
    assert len(saving.contents(folder / "global_step_5")) == 8


def test_a_reflink_takes_no_space_and_nothing_writes_through_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "xfs") as disk:
        folder = disk / "e"
        folder.mkdir()
        size = 8 << 20
        place = saving.verl(folder, 5, size=size)
        before, was = shutil.disk_usage(disk).free, saving.contents(place)
        assert keep(folder, "global_step_5") == REFLINK
        os.sync()
        assert before - shutil.disk_usage(disk).free < size
        saving.verl(folder, 5, size=size)

        with opened(folder) as best:
            assert [each.name for each in best.kept] == ["global_step_5"]
        assert saving.contents(disk / "e.best" / "global_step_5") == was
        shutil.rmtree(folder)
        assert saving.contents(disk / "e.best" / "global_step_5") == was


def test_what_someone_else_changed_is_left_alone(folder: Path) -> None:
    saving.verl(folder, 5)
    keep(folder, "global_step_5")
    shutil.rmtree(folder / "global_step_5")
    kept = folder.with_name("e.best") / "global_step_5"
    (kept / "data.pt").write_bytes(b"mine")

    with opened(
        folder, says=(f"{kept} was changed; it is left as it is and no longer counts as kept.",)
    ) as best:
        assert best.kept == []
    assert (kept / "data.pt").read_bytes() == b"mine"
    saving.verl(folder, 5)
    (kept / "notes.txt").write_text("mine")
    with pytest.raises(NotKept, match="was not made by Stepwatch"):
        keep(folder, "global_step_5")


def test_a_foreign_file_in_a_kept_checkpoint_stays_when_that_is_dropped(folder: Path) -> None:
    saving.verl(folder, 5)
    with opened(folder) as best:
        kept = best.keep(saving.checkpoint(folder, "global_step_5"), 1.0, "validation", "why")
        notes = best.place / "global_step_5" / "notes.txt"
        notes.write_text("mine")
        with pytest.raises(NotKept, match="not deleted"):
            best.drop(kept)

    assert notes.read_text() == "mine"


def _link(place: Path) -> None:
    (place.parent / "elsewhere").mkdir()
    place.symlink_to(place.parent / "elsewhere")


def _with_a_file(place: Path) -> None:
    place.mkdir()
    (place / "mine").write_text("mine")


@pytest.mark.parametrize("make", [_link, _with_a_file, lambda place: place.write_text("mine")])
def test_a_folder_that_stepwatch_did_not_make_is_refused(
    folder: Path, make: Callable[[Path], object]
) -> None:
    saving.verl(folder, 5)
    place = folder.with_name("e.best")
    make(place)
    with pytest.raises(NotKept, match=r"was not made by Stepwatch.* Fix: move it away\."):
        keep(folder, "global_step_5")

    assert not (place.parent / "elsewhere" / MARKER).exists()
    assert not (place / MARKER).exists()


def test_a_checkpoint_with_a_link_in_it_is_not_kept(folder: Path) -> None:
    place = saving.verl(folder, 5)
    (place / "base").symlink_to("/usr")
    with pytest.raises(NotKept, match="contains a link"):
        keep(folder, "global_step_5")


def _no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "no links here")


@pytest.mark.parametrize("links", [True, False])
def test_a_disk_is_never_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr("os.link", _no_links)
    with small_disk(tmp_path / "disk", "tmpfs") as disk:
        folder = disk / "checkpoints" / "e"
        saving.verl(folder, 5, size=4 << 20)  # 24 MiB
        assert keep(folder, "global_step_5") == (HARD_LINK if links else COPY)
        saving.verl(folder, 6, size=4 << 20)
        with (disk / "others").open("wb") as file:
            file.truncate(0)
            taken = os.statvfs(disk)
            file.write(bytes(taken.f_bavail * taken.f_frsize - (20 << 20)))
        with pytest.raises(NotKept, match=r"GiB free; keeping a checkpoint takes .* Fix: free some space"):
            keep(folder, "global_step_6")

        now = os.statvfs(disk)
        assert now.f_bavail * now.f_frsize == 20 << 20
        assert listed(folder) == ["global_step_5"]
        (disk / "others").unlink()
        fill(disk / "others")
        with suppress(NotKept, OSError):  # not even its own notes have room
            keep(folder, "global_step_6")
        assert listed(folder)[-1:] == ["global_step_5"]
        (disk / "others").unlink()
        with opened(folder) as best:
            assert [each.name for each in best.kept] == ["global_step_5"]
        assert SIZE_MIB > 72


def test_where_the_trainers_folder_is_a_disk_the_best_are_on_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "tmpfs") as disk:
        saving.transformers(disk, 5)
        assert keep(disk, "checkpoint-5") == HARD_LINK
        assert (disk / "best" / "checkpoint-5").is_dir()
