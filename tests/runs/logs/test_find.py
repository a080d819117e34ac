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


@pytest.mark.parametrize(
    ("files", "links", "patterns", "expected"),
    [
        ("b/c/d.log a.jsonl b/a.log", {}, ".", "a.jsonl b/a.log b/c/d.log"),  # sorted
        ("a.log .hidden .git/config b/.rsync.X1 b/c.log", {}, ".", "a.log b/c.log"),
        ("b/c.log", {}, "b/c.log", "c.log"),
        # globs are named from their fixed part on, and a folder may look like one
        ("x/one/a.log x/two/a.log x/two/b.txt y/a.log", {}, "x/*/*.log", "one/a.log two/a.log"),
        ("x/one/a.log x/two/a.log x/two/b.txt", {}, "x/**/b.txt", "two/b.txt"),
        ("x/one/a.log x/two/a.log x/two/b.txt", {}, "x/t*", "two/a.log two/b.txt"),
        ("run[1]/a.log run1/b.log", {}, "run[1]", "a.log"),
        # each once
        ("b/a.log", {}, ". b b/a.log */*.log", "b/a.log"),
        ("", {}, "missing *.log", ""),
        # a file's own name comes before that of links; what only a link leads to has the link's
        ("runs/run-7.log", {"runs/latest.log": "run-7.log"}, "runs", "run-7.log"),
        ("elsewhere/a.log runs/b.log", {"runs/l.log": "../elsewhere/a.log"}, "runs", "b.log l.log"),
        ("elsewhere/a.log", {"runs": "elsewhere"}, "runs", "a.log"),
        ("disk/ppo/a.log runs/b.log", {"runs/new": "../disk"}, "runs", "b.log new/ppo/a.log"),
        ("z/a.log", {"latest": "z"}, ".", "z/a.log"),
        # circles
        (
            "disk/one/a.log disk/two/b.log runs/c.log",
            {"disk/one/x": "../two", "disk/two/x": "../one", "runs/up": "..", "runs/one": "../disk/one"},
            "runs",
            "c.log one/a.log one/x/b.log",
        ),
    ],
)
def test_each_file_is_found_once_under_its_name(
    tmp_path: Path, files: str, links: dict[str, str], patterns: str, expected: str
) -> None:
    make(tmp_path, *files.split())
    for link, target in links.items():
        (tmp_path / link).symlink_to(target)

    assert found(*(tmp_path / pattern for pattern in patterns.split())) == expected.split()


def test_relative_patterns_are_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "runs/a.log", "runs/b/c.log")
    monkeypatch.chdir(tmp_path)

    assert found("./runs") == found("runs") == found("runs/") == ["a.log", "b/c.log"]
    assert found("runs/*.log") == ["a.log"]


def test_broken_links_loops_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    make(tmp_path, "a.log")
    (tmp_path / "broken.log").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")

    assert found(tmp_path) == ["a.log"]
    assert found(tmp_path / "pipe.log", tmp_path / "itself", tmp_path / "broken.log") == []


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
        (b'{\n "cells": [\n  {"cell_type": "code"}\n ]\n}', "notebook"),
        (b'{"nbformat":4,"cells":[]}', "notebook"),
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
        "notebook",
        "compressed",
        "events",
        "database",
        "swanlab",
        "wandb",
    )
