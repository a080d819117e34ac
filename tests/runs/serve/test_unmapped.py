"""A run that no rule can judge is reported, once, with its keys and the fix."""

from __future__ import annotations

from pathlib import Path

from tests.runs.conftest import Watching
from tests.runs.lines import append, measured, verl_json


def test_a_run_of_unknown_keys_is_reported_once_and_counted(
    folder: Path, watched: Watching, logged: list[str]
) -> None:
    append(folder / "a.jsonl", *(verl_json(step, {"my/points": step}) for step in range(6)))
    append(folder / "b.jsonl", *(verl_json(step, measured(step)) for step in range(6)))
    page = watched()

    assert page.look().value("stepwatch_unjudged_runs") == 1
    page.look(10.0)
    said = [line for line in logged if "signal" in line]
    assert len(said) == 1
    assert said[0].startswith("a: none of its keys is a signal that rules use: my/points. Fix: ")


def test_a_run_is_given_some_records_before_it_is_reported(folder: Path, watched: Watching) -> None:
    append(folder / "a.jsonl", *(verl_json(step, {"my/points": step}) for step in range(4)))

    assert watched().look().value("stepwatch_unjudged_runs") == 0


def test_a_run_whose_keys_become_known_is_no_longer_counted(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.jsonl"
    append(log, *(verl_json(step, {"my/points": step}) for step in range(6)))
    page.look()
    append(log, verl_json(6, measured(6)))

    assert page.look(1.0).value("stepwatch_unjudged_runs") == 0
