"""Files that may be logs are found, each once, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.logs import find
from exporter.runs.readers.content import content


def found(*patterns: str | Path) -> list[str]:
    return [file.relative.as_posix() for file in find.files([str(pattern) for pattern in patterns])]


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")


def test_all_files_below_a_folder_are_found_sorted(tmp_path: Path) -> None:
    make(tmp_path, "b/c/d.log", "a.jsonl", "b/a.log")

    assert found(tmp_path) == ["a.jsonl", "b/a.log", "b/c/d.log"]


def test_hidden_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    make(tmp_path, "a.log", ".hidden", ".git/config", "b/.rsync.X1", "b/c.log")

    assert found(tmp_path) == ["a.log", "b/c.log"]


def test_a_single_file_is_found_under_its_own_name(tmp_path: Path) -> None:
    make(tmp_path, "b/c.log")

    assert found(tmp_path / "b/c.log") == ["c.log"]


def test_globs_are_named_from_their_fixed_part_on(tmp_path: Path) -> None:
    make(tmp_path, "x/one/a.log", "x/two/a.log", "x/two/b.txt", "y/a.log")

    assert found(tmp_path / "x/*/*.log") == ["one/a.log", "two/a.log"]
    assert found(tmp_path / "x/**/b.txt") == ["two/b.txt"]
    assert found(tmp_path / "x/t*") == ["two/a.log", "two/b.txt"]


def test_a_folder_whose_name_looks_like_a_glob_is_a_folder(tmp_path: Path) -> None:
    make(tmp_path, "run[1]/a.log", "run1/b.log")

    assert found(tmp_path / "run[1]") == ["a.log"]


def test_relative_patterns_are_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "runs/a.log", "runs/b/c.log")
    monkeypatch.chdir(tmp_path)

    assert found("./runs") == found("runs") == found("runs/") == ["a.log", "b/c.log"]
    assert found("runs/*.log") == ["a.log"]


def test_a_file_that_several_patterns_lead_to_is_found_once(tmp_path: Path) -> None:
    make(tmp_path, "b/a.log")

    assert found(tmp_path, tmp_path / "b", tmp_path / "b/a.log", tmp_path / "*/*.log") == ["b/a.log"]


def test_a_missing_folder_and_an_empty_glob_find_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "missing", tmp_path / "*.log") == []


def test_a_file_and_the_links_to_it_are_one_file_under_its_own_name(tmp_path: Path) -> None:
    make(tmp_path, "runs/run-7.log")
    (tmp_path / "runs/latest.log").symlink_to("run-7.log")

    assert found(tmp_path / "runs") == ["run-7.log"]


def test_a_link_that_leads_out_of_the_folder_is_found_under_the_links_name(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.log", "runs/b.log")
    (tmp_path / "runs/link.log").symlink_to(tmp_path / "elsewhere/a.log")

    assert found(tmp_path / "runs") == ["b.log", "link.log"]


def test_a_watched_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.log")
    (tmp_path / "runs").symlink_to(tmp_path / "elsewhere")

    assert found(tmp_path / "runs") == ["a.log"]


def test_a_linked_folder_is_looked_into_under_the_links_name(tmp_path: Path) -> None:
    make(tmp_path, "disk/ppo/a.log", "runs/b.log")
    (tmp_path / "runs/new").symlink_to(tmp_path / "disk")

    assert found(tmp_path / "runs") == ["b.log", "new/ppo/a.log"]


def test_what_is_in_a_linked_folder_that_is_watched_anyway_has_its_own_name(tmp_path: Path) -> None:
    make(tmp_path, "z/a.log")
    (tmp_path / "latest").symlink_to("z")

    assert found(tmp_path) == ["z/a.log"]


def test_links_that_lead_in_circles_are_gone_round_once(tmp_path: Path) -> None:
    make(tmp_path, "disk/one/a.log", "disk/two/b.log", "runs/c.log")
    (tmp_path / "disk/one/other").symlink_to(tmp_path / "disk/two")
    (tmp_path / "disk/two/other").symlink_to(tmp_path / "disk/one")
    (tmp_path / "runs/up").symlink_to(tmp_path)
    (tmp_path / "runs/one").symlink_to(tmp_path / "disk/one")

    assert found(tmp_path / "runs") == ["c.log", "one/a.log", "one/other/b.log"]


def test_broken_links_loops_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    make(tmp_path, "a.log")
    (tmp_path / "broken.log").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")

    assert found(tmp_path) == ["a.log"]
    assert found(tmp_path / "pipe.log", tmp_path / "itself", tmp_path / "broken.log") == []


def test_names_of_any_bytes_are_found(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff\n.log")).write_text("x")

    assert len(found(tmp_path)) == 1


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b"step:1 - critic/score/mean:0.5\n", "text"),
        ("Fortschritt: 3 % ▎ \x1b[36m(TaskRunner)\x1b[0m\r\n\t".encode(), "text"),
        (b"\0" * 5000 + b"step:1\n", "text"),
        (b"\xff\xfe latin-1 \xe9\xe8\n", "text"),
        (b"\x80\x02}q\x00X\x03\x00\x00\x00abcq\x01K\x01s." * 20, "binary"),
        (bytes(range(256)) * 20, "binary"),
        (b'{"a": 1, "step": 2}\n', "text"),
        (b'{"a": NaN}\n{"a": 2}\n', "text"),
        (b'{"epoch": 1.0, "log_history": [{"step": 1}]}', "document"),
        (b'{\n  "epoch": 1.0\n}', "document"),
        (b'[{"step": 1}, {"step": 2}]\n', "document"),
        (b'{"train/reward": {"1": 0.5, "2": 0.25}}\n', "document"),
        (b'{"train/reward": {"1": 0.5}}\n{"train/reward": {"2": 0.5}}\n', "text"),
        (b"[2026-08-21 10:11:12] rollout 1: {'a': 1}\n", "text"),
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b"PK\x03\x04\x14\x00\x08\x08\x08\x00\x01\x02\x03\x04", "binary"),
    ],
)
def test_checkpoints_are_distinguished_from_text(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)

    assert content(path) == kind


@given(st.binary(max_size=500))
def test_any_content_is_of_some_kind(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(data)

    assert content(path) in (
        "empty",
        "text",
        "binary",
        "document",
        "compressed",
        "events",
        "database",
        "swanlab",
        "wandb",
    )


def test_a_folder_that_cannot_be_looked_into_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.log", "secret/b.log")
    status = os.stat

    def stat(path: str | Path, **options: bool) -> os.stat_result:
        if "secret" in Path(path).parts:
            raise PermissionError(13, "permission denied")
        return status(path, **options)

    monkeypatch.setattr(os, "stat", stat)

    assert found(tmp_path, tmp_path / "secret/b.log") == ["a.log"]
