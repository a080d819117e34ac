from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.logs.names import run_name, run_names


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("ppo/gsm8k.jsonl", "ppo/gsm8k"),
        ("gsm8k.log", "gsm8k"),
        ("a/b/c/run.v1.5.log", "a/b/c/run.v1.5"),
        ("wandb/run-1-abc/files/output.log", "run-1-abc"),
        ("ppo/output.log", "ppo"),
        ("project/ppo/metrics.jsonl", "project/ppo"),
        ("ppo/trainer_state.json", "ppo"),
        ("ppo/verl_logs.txt", "ppo"),
        ("ppo/logs/train.log", "ppo"),
        ("train.log", "train"),
        ("files/output.log", "output"),
        ("run with spaces.log", "run with spaces"),
    ],
)
def test_a_run_is_named_by_its_path_without_suffix_and_generic_stems_give_way(path: str, name: str) -> None:
    assert run_name(PurePath(path)) == name


def named(*paths: str) -> list[str]:
    return list(run_names({Path("/runs", path): PurePath(path) for path in paths}).values())


def test_runs_of_one_name_are_distinguished_by_their_path() -> None:
    assert named("a.log", "a.jsonl", "b.log") == ["a.log", "a.jsonl", "b"]
    assert named("ppo/output.log", "ppo/train.log") == ["ppo/output.log", "ppo/train.log"]


def test_runs_of_one_path_below_two_folders_are_distinguished_by_the_folders() -> None:
    logs = {Path("/one/a.log"): PurePath("a.log"), Path("/two/a.log"): PurePath("a.log")}

    assert list(run_names(logs).values()) == ["/one/a.log", "/two/a.log"]


def test_a_longer_name_that_is_taken_gives_way_as_well() -> None:
    found = named("a.log", "a.jsonl", "a.log/output.log")

    assert len(set(found)) == 3


def test_names_are_text_whatever_bytes_a_path_holds() -> None:
    path = PurePath(os.fsdecode(b"ppo/\xff\xfe.log"))

    assert run_name(path).encode() == rb"ppo/\xff\xfe"


parts = st.text(st.sampled_from("ab.-"), min_size=1, max_size=3).filter(lambda part: part.strip("."))
stems = st.sampled_from(["output", "metrics", "train", "a", "b"])
paths = st.builds(
    lambda folders, stem, suffix: PurePath(*folders, stem + suffix),
    st.lists(st.one_of(parts, st.sampled_from(["files", "logs"])), max_size=3),
    stems,
    st.sampled_from(["", ".log", ".jsonl"]),
)


@given(st.sets(paths, max_size=12), st.sets(paths, max_size=12))
def test_no_two_runs_have_one_name(one: set[PurePath], two: set[PurePath]) -> None:
    logs = {Path(root) / path: path for root, found in (("/one", one), ("/two", two)) for path in found}

    assert len(set(run_names(logs).values())) == len(logs)
