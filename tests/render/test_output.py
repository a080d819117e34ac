import errno
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath

import pytest

from stepwatch.render.output import OutputError, compare, locked, replace, staged

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


def test_what_is_left_when_a_file_cannot_be_replaced_the_next_writer_replaces(tmp_path, monkeypatch):
    write(tmp_path, files(a_changed="1", a_gone="1", b_changed="1"))
    wanted = files(a_changed="2", a_new="2", b_changed="2")
    really = Path.replace

    def fail(source, target):
        if Path(target).name == "new":
            raise OSError(errno.EIO, "Input/output error", str(target))
        return really(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(OutputError, match=r"generated/new: Input/output error\. Expected: .* remaining"):
            write(tmp_path, wanted)
    assert texts(tmp_path)["a/generated/gone"] == "1"

    write(tmp_path, wanted)
    assert texts(tmp_path) == {str(path): content.decode() for path, content in wanted.items()}


def test_on_a_full_disk_all_is_as_it_was(tmp_path, monkeypatch):
    write(tmp_path, files(a_changed="1", a_gone="1"))
    before = tree(tmp_path)
    really = Path.write_bytes

    def fail(path, content):
        if path.name == "new":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return really(path, content)

    monkeypatch.setattr(Path, "write_bytes", fail)

    with pytest.raises(OutputError, match=r"No space left on device\. Expected: .* Fix: .* as they were"):
        write(tmp_path, files(a_changed="2", a_new="2"))
    assert tree(tmp_path) == before


def test_a_writer_killed_at_any_moment_leaves_whole_files_and_the_next_completes_them(tmp_path):
    command = [sys.executable, "-m", "tests.killed_writer", tmp_path / "out"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    old, new, after = json.loads(done.stdout)

    assert [left for left, _ in after if not left.items() <= {*old.items(), *new.items()}] == []
    assert {*old} & {*new} <= set.intersection(*({*left} for left, _ in after))
    assert [completed for _, completed in after if completed != new] == []
    assert after[0][0] == old
    assert after[-1][0] == new
    assert len(after) > 40


def test_a_main_file_changes_after_the_files_that_it_names_and_orphans_go_last(tmp_path, monkeypatch):
    write(tmp_path, files(a_a="1", a_x="1", a_gone="1"))
    order = []
    rename, unlink = Path.replace, Path.unlink

    def renamed(source, target):
        order.append(Path(target).name)
        return rename(source, target)

    def unlinked(path):
        order.append(path.name)
        unlink(path)

    monkeypatch.setattr(Path, "replace", renamed)
    monkeypatch.setattr(Path, "unlink", unlinked)

    write(tmp_path, {**files(a_a="2", a_x="2"), PurePosixPath("a/generated/deep/y"): b"2"})

    assert order == ["y", "x", "a", "gone"]


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


def test_a_folder_in_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "a/generated/x").mkdir(parents=True)

    with pytest.raises(OutputError, match=r"a/generated/x: is a folder\. Expected: a file\."):
        write(tmp_path, files(a_w="1", a_x="1"))

    assert texts(tmp_path) == {}


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
