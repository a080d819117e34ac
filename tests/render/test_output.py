import errno
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath

import pytest

from stepwatch.render import output
from stepwatch.render.output import OutputError, compare, locked, recover, replace, staged

CHECKOUT = Path(__file__).parents[2]


def files(**texts):
    """Files by service and name: `files(a_x="text")` is `a/generated/x` with that text."""
    return {PurePosixPath(key.replace("_", "/generated/", 1)): text.encode() for key, text in texts.items()}


def write(out, wanted):
    with locked(out), staged(out, wanted) as staging:
        changes = compare(out, wanted)
        replace(out, staging, changes)
    return changes


def tree(out):
    """Every file below a folder with its content and the time it was written."""
    return {
        str(path.relative_to(out)): (path.read_text(), path.stat().st_mtime_ns)
        for path in out.rglob("*")
        if path.is_file()
    }


def texts(out):
    return {name: text for name, (text, _) in tree(out).items()}


def test_orphans_and_the_folders_they_leave_empty_are_deleted(tmp_path):
    write(tmp_path, {**files(a_x="1"), PurePosixPath("a/generated/deep/er/y"): b"1"})
    (tmp_path / "a" / "templates").mkdir()
    (tmp_path / "a" / "templates" / "mine").write_text("1")
    (tmp_path / "other" / "generated").mkdir(parents=True)
    (tmp_path / "other" / "generated" / "mine").write_text("1")

    write(tmp_path, files(a_x="1"))

    assert texts(tmp_path) == {"a/generated/x": "1", "a/templates/mine": "1", "other/generated/mine": "1"}
    assert not (tmp_path / "a/generated/deep").exists()


def test_dot_files_are_other_programs_own(tmp_path):
    write(tmp_path, files(a_x="1"))
    (tmp_path / "a/generated/.gitkeep").touch()

    assert not write(tmp_path, files(a_x="1"))
    assert (tmp_path / "a/generated/.gitkeep").exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_and_folders_can_be_read_by_servers_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write(tmp_path / "out", {PurePosixPath("a/generated/b/x"): b"1"})
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").rglob("*")}

    assert modes == {"a": 0o755, "generated": 0o755, "b": 0o755, "x": 0o644}


def test_modes_of_files_that_are_right_are_mended(tmp_path):
    write(tmp_path, files(a_x="1"))
    (tmp_path / "a/generated/x").chmod(0o600)
    (tmp_path / "a/generated").chmod(0o700)

    assert not write(tmp_path, files(a_x="1"))
    assert stat.S_IMODE((tmp_path / "a/generated/x").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "a/generated").stat().st_mode) == 0o755


@pytest.mark.parametrize("failing", range(1, 5))
def test_when_one_file_cannot_be_replaced_all_are_as_they_were(tmp_path, monkeypatch, failing):
    write(tmp_path, files(a_changed="1", a_gone="1", b_changed="1"))
    before = tree(tmp_path)
    really, calls = os.replace, []

    def fail(source, target):
        calls.append(target)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        really(source, target)

    monkeypatch.setattr(os, "replace", fail)

    with pytest.raises(OutputError, match=r"No space left on device\. Expected: .* Fix: .* as they were"):
        write(tmp_path, files(a_changed="2", a_new="2", b_changed="2", b_new="2"))

    assert tree(tmp_path) == before


@pytest.mark.parametrize("failing", [False, pytest.param(True, marks=pytest.mark.world)])
def test_a_writer_killed_at_any_moment_leaves_the_old_files_or_the_new_ones_after_the_next_start(
    tmp_path, failing
):
    command = [sys.executable, "-m", "tests.killed_writer", tmp_path, *(["--failing"] if failing else [])]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    old, new, after = json.loads(done.stdout)

    assert [texts for texts in after if texts not in (old, new)] == []
    assert after[0] == old
    assert after[-1] == (old if failing else new)
    assert old in after
    assert new in after
    assert len(after) > 200


def test_all_that_a_recovery_needs_is_on_disk_before_the_first_file_changes(tmp_path, monkeypatch):
    write(tmp_path, files(a_changed="1", a_gone="1"))
    synced, needed = set(), {}
    sync, rename = os.fsync, os.replace

    def fsync(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def watched(source, target):
        if Path(source).is_dir():
            needed.update({path: path.stat().st_ino for path in (source, *Path(source).rglob("*"))})
            assert set(needed.values()) <= synced
            synced.clear()
        elif "generated" in Path(target).parts:
            assert tmp_path.stat().st_ino in synced  # the decision itself
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", watched)

    write(tmp_path, files(a_changed="2", a_new="2"))

    assert {path.name for path in needed} >= {"changed", "new", "gone", "changes.json"}
    assert (tmp_path / "a/generated").stat().st_ino in synced


def test_a_damaged_journal_is_named_with_the_fix(tmp_path):
    journal = tmp_path / ".generated.finish"
    journal.mkdir()
    (journal / "changes.json").write_text("[]")

    with pytest.raises(OutputError) as caught:
        recover(tmp_path)

    assert str(caught.value) == (
        f"{journal}/changes.json: the file is damaged. Expected: what an interrupted command wrote. "
        f"Fix: delete the folder {journal}, then run the command again."
    )


def test_a_main_file_changes_after_the_files_that_it_names_and_orphans_go_last(tmp_path, monkeypatch):
    write(tmp_path, files(a_a="1", a_x="1", a_gone="1"))
    order = []
    rename, unlink = os.replace, Path.unlink

    def renamed(source, target):
        order.append(Path(target).name)
        rename(source, target)

    def unlinked(path, *, missing_ok=False):
        order.append(path.name)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(output.os, "replace", renamed)
    monkeypatch.setattr(Path, "unlink", unlinked)

    write(tmp_path, {**files(a_a="2", a_x="2"), PurePosixPath("a/generated/deep/y"): b"2"})

    assert order == [".generated.finish", "y", "x", "a", "gone", "changes.json"]


def test_a_link_in_place_of_a_generated_folder_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/mine").write_text("1")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/generated").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutputError) as caught:
        write(tmp_path, files(a_x="1"))

    assert str(caught.value) == (
        f"{tmp_path}/a/generated: is a link. Expected: a folder. Fix: move it away; nothing was written."
    )
    assert texts(tmp_path / "elsewhere") == {"mine": "1"}


@pytest.mark.parametrize("place", ["a", "a/generated", "a/generated/deep"])
def test_a_file_in_place_of_a_folder_is_refused(tmp_path, place):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("mine")

    with pytest.raises(OutputError, match="Expected: "):
        write(tmp_path, {PurePosixPath("a/generated/deep/x"): b"1"})

    assert texts(tmp_path) == {place: "mine"}


def test_a_link_in_place_of_a_file_is_replaced_and_its_target_left_alone(tmp_path):
    (tmp_path / "mine").write_text("1")
    (tmp_path / "a/generated").mkdir(parents=True)
    (tmp_path / "a/generated/x").symlink_to(tmp_path / "mine")
    (tmp_path / "a/generated/orphan").symlink_to(tmp_path)

    write(tmp_path, files(a_x="2"))

    assert texts(tmp_path) == {"mine": "1", "a/generated/x": "2"}
    assert not (tmp_path / "a/generated/x").is_symlink()


def test_what_a_killed_writer_left_is_cleared_away(tmp_path):
    (tmp_path / ".generated-old/new").mkdir(parents=True)

    write(tmp_path, files(a_x="1"))

    assert not list(tmp_path.rglob(".generated-*"))


@pytest.mark.slow
def test_two_writers_do_not_mix(tmp_path):
    first, second = (files(**{f"a_{n}": str(kind) for n in range(40)}) for kind in "12")
    seen = []

    def again(wanted):
        for _ in range(15):
            with locked(tmp_path), staged(tmp_path, wanted) as staging:
                seen.append(set(texts(tmp_path / "a" / "generated").values()))
                replace(tmp_path, staging, compare(tmp_path, wanted))

    threads = [threading.Thread(target=again, args=[wanted]) for wanted in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 30
    assert all(len(values) == 1 for values in seen[1:])
