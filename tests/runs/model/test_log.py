"""A restarted exporter knows what one that ran on knows, whatever became of the log."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.runs.files.state import ASIDE, NAME
from tests.runs.conftest import Clock, Watched, Watching
from tests.runs.lines import append, measured, verl_json
from tests.runs.scrape import Labels

Page = dict[tuple[str, Labels], float]


@dataclass
class Trainer:
    """A trainer that writes verl's file logger, and may be started again at an earlier step."""

    log: Path
    step: int = 0
    highest: int = 0
    written: itertools.count[int] = field(default_factory=itertools.count)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            number = next(self.written)
            values = measured(self.step, reward=number * 7 % 13 / 13, kl=number * 5 % 11 / 110)
            append(self.log, verl_json(self.step, values))
        self.highest = max(self.highest, self.step)

    def resume(self, back: int, steps: int, *, empties: bool) -> None:
        """Start again some steps before the last; verl's file logger empties the log."""
        if empties:
            self.log.write_text("")
        self.step -= back
        self.train(steps)

    def start_over(self, steps: int, *, empties: bool) -> None:
        if empties:
            self.log.write_text("")
        self.step = 0
        self.train(steps)


@pytest.fixture(name="stateful")
def _stateful(watched: Watching, tmp_path: Path) -> Watching:
    """An exporter that keeps its state, or one that finds that of the last."""
    return partial(watched, state_dir=tmp_path / "state")


def known(page: Watched) -> Page:
    """What is known of the run once nothing is held any more."""
    scrape = page.look(60.0)
    assert scrape.runs() == {"a"}
    return scrape.about_run("a")


def mark(trainer: Trainer, *pages: Watched) -> None:
    """Mark the run, which makes a step so that it is there to be marked."""
    trainer.train(1)
    for page in pages:
        page.look(1.0)
        page.watch.mark("a", "new data")


events = st.one_of(
    st.tuples(st.just("train"), st.integers(1, 30)),
    st.tuples(st.just("resume"), st.integers(2, 20), st.integers(1, 40), st.booleans()),
    st.tuples(st.just("start_over"), st.integers(1, 20), st.booleans()),
    st.tuples(st.just("marked")),
    st.tuples(st.just("killed")),
    st.tuples(st.just("stopped")),
    st.tuples(st.just("stopped while resuming"), st.integers(2, 20), st.integers(1, 40), st.booleans()),
)


@pytest.mark.slow
@given(story=st.lists(events, max_size=12))
@example(story=[("stopped while resuming", 2, 1, True)])  # the gradient norm has windows only
def test_statistics_after_restarts_are_those_without(
    watched: Watching, folder: Path, tmp_path: Path, story: list[tuple[Any, ...]]
) -> None:
    for old in [*folder.iterdir(), *tmp_path.glob("state/*")]:
        old.unlink()
    trainer, states = Trainer(folder / "a.jsonl"), tmp_path / "state"
    trainer.train(3)
    ran_on, restarted = watched(), watched(state_dir=states)
    for event in [("train", 1), *story]:
        ran_on.look(1.0)
        restarted.look(1.0)
        match event:
            case ("train", steps):
                trainer.train(steps)
            case ("resume", back, steps, empties) if back < trainer.step:
                trainer.resume(back, steps, empties=empties)
            case ("start_over", steps, empties):
                trainer.start_over(steps, empties=empties)
            case ("marked",):
                mark(trainer, ran_on, restarted)
            case ("killed" | "stopped" as how,):
                restarted.watch.look() if how == "killed" else restarted.watch.save()
                restarted = watched(state_dir=states)
            case ("stopped while resuming", back, steps, empties) if back < trainer.step:
                restarted.watch.save()
                trainer.resume(back, steps, empties=empties)
                restarted = watched(state_dir=states)
    for page in (ran_on, restarted):
        page.look(1.0)
    trainer.train(1)

    assert known(restarted) == known(ran_on)


def test_without_a_state_folder_a_restart_rebuilds_everything_from_the_log(
    watched: Watching, folder: Path
) -> None:
    trainer = Trainer(folder / "a.jsonl")
    trainer.train(80)
    trainer.resume(20, 50, empties=False)
    first = watched()
    first.look()
    second = watched()
    second.look()
    trainer.train(1)

    assert known(second) == known(first)


def test_nothing_is_held_after_a_restart(stateful: Watching, folder: Path) -> None:
    log = folder / "a.jsonl"
    append(log, *(verl_json(step, measured(step)) for step in range(50)))
    page = stateful()
    page.look()
    append(log, *(verl_json(step, measured(step, kl=9.0)) for step in range(50, 53)))
    page.look(1.0)
    append(log, *(verl_json(step, measured(step)) for step in range(53, 60)))
    assert page.look(1.0).value("rl_min_over_steps", run="a", signal="kl", steps="3") == 9.0
    page.watch.save()

    after = stateful().look(1.0)

    assert (after.value("rl_min_over_steps", run="a", signal="kl", steps="3") or 9.0) < 0.1


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"\xff" * 100, None], ids=["empty", "foreign", "noise", "truncated"]
)
def test_a_bad_state_file_is_set_aside_and_counts_as_none(
    stateful: Watching, folder: Path, tmp_path: Path, damage: bytes | None
) -> None:
    trainer = Trainer(folder / "a.jsonl")
    trainer.train(80)
    page = stateful()
    page.look()
    page.watch.save()
    state = tmp_path / "state" / NAME
    state.write_bytes(state.read_bytes()[:-5000] if damage is None else damage)
    trainer.resume(20, 5, empties=True)
    after = stateful().look()

    assert after.value("rl_records_total", run="a") == 5
    assert (state.with_name(ASIDE)).exists() == bool(damage != b"")


def test_half_a_log_does_not_overwrite_what_was_known_of_the_whole(
    watched: Watching, folder: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, states = Trainer(folder / "a.jsonl"), tmp_path / "state"
    trainer.train(200)
    page = watched(state_dir=states)
    page.look()
    page.watch.save()
    state = states / NAME
    saved = state.read_bytes()
    monkeypatch.setattr("exporter.runs.readers.follow.BLOCK", 5000)
    monkeypatch.setattr("exporter.runs.logs.watch.READ_SECONDS", -1.0)
    half = watched(state_dir=states)
    clock.advance(1.0)
    half.watch.look()
    half.watch.save()

    assert state.read_bytes() == saved


def test_run_folders_are_only_read(stateful: Watching, folder: Path) -> None:
    trainer = Trainer(folder / "a.jsonl")
    trainer.train(10)
    page = stateful()
    page.look()
    trainer.resume(3, 9, empties=True)
    page.look(1.0)
    page.watch.save()

    assert [path.name for path in folder.rglob("*")] == ["a.jsonl"]
