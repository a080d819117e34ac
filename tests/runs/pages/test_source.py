"""Polled pages and their runs on the exporter's page: of the settings, and of those that register."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from exporter.runs.files.state import State
from exporter.runs.model import ends, run_set
from exporter.runs.model.ends import Judge, Silence
from exporter.runs.model.run import Options
from exporter.runs.model.run_set import MOST_RUNS, RunLimit
from exporter.runs.pages import page as page_module
from exporter.runs.pages import source as module
from exporter.runs.pages.source import PolledSource
from exporter.runs.pages.web import PollError
from exporter.runs.signals.record import Event, Record
from tests.real.waiting import eventually
from tests.runs.lines import append, measured, verl_json
from tests.runs.polled import FakeTarget
from tests.runs.served import Serve, Served
from tests.runs.speaking import Speaking, says

LASTING = ("rl_best", "rl_start", "rl_noise", "rl_peak", "rl_records_total", "rl_run_start_timestamp_seconds")
"""What a page does not tell a second time."""


class Trainer(Speaking):
    """Serves what a test sets, or an error while ``text`` is None."""

    def __init__(self) -> None:
        self.text: str | None = ""
        super().__init__(self._speak)
        self.address = self.url.removeprefix("http://")
        self.flags = ("--pages", json.dumps([{"url": f"{self.url}/metrics"}]))

    def _speak(self, handler: BaseHTTPRequestHandler) -> None:
        says(b"" if self.text is None else self.text.encode(), 503 if self.text is None else 200)(handler)

    def step(self, step: int, reward: float | None = None, run: str = "") -> None:
        reward = step / 10 if reward is None else reward
        project, _, experiment = run.partition("/")
        labels = f'{{project="{project}",experiment_name="{experiment}"}}'
        values = {"training_global_step": step, "critic_score_mean": reward, "actor_kl_loss": reward / 100}
        self.text = "".join(f"rl_insight_monitor_{name}{labels} {value}\n" for name, value in values.items())


@pytest.fixture(name="trainers", autouse=True)
def _trainers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Trainer]]:
    """Two pages, polled often."""
    monkeypatch.setattr(page_module, "SETTLE_SECONDS", 0.02)
    for name in ("AWAY_SECONDS", "FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(module, name, 0.5 if name == "AWAY_SECONDS" else 0.1)
    monkeypatch.setattr(ends, "GONE_SECONDS", 0.5)
    with Trainer() as first, Trainer() as second:
        yield [first, second]


@pytest.fixture(name="trainer")
def _trainer(trainers: list[Trainer]) -> Trainer:
    return trainers[0]


def makes_steps(served: Served, trainer: Trainer, run: str, *steps: int, shift: float = 0.0) -> None:
    """Each once the one before was seen."""
    for step in steps:
        trainer.step(step, step / 10 + shift, run if "/" in run else "")
        at(served, run, step)


def at(served: Served, run: str, step: int) -> None:
    served.until(lambda: served.scrape().value("rl_step", run=run) == step)


def in_states(served: Served, **states: str) -> None:
    wanted = {run.replace("__", "/"): state for run, state in states.items()}
    served.until(lambda: {run: served.scrape().state(run) for run in served.scrape().runs()} == wanted)


# pages of the settings


def test_each_step_of_a_page_is_a_record_and_what_it_shows_at_first_raises_nothing(
    serve: Serve, trainer: Trainer
) -> None:
    trainer.step(7, 0.7)
    served, run = serve(*trainer.flags), trainer.address
    at(served, run, 7)
    # a statistic that rules look at first, so that only a live step shows it
    streak = {"name": "rl_nonfinite_streak_steps", "run": run, "signal": "reward"}
    assert served.scrape().value(**streak) is None
    makes_steps(served, trainer, run, 8, 9, 10)
    found = served.scrape()
    assert found.value(**streak) == 0
    assert found.value("rl_reward", run=run) == pytest.approx(1.0)
    assert found.value("rl_kl", run=run) == pytest.approx(0.01)
    assert found.value("rl_run_info", run=run, source="prometheus_page") == 1
    assert (found.value("rl_records_total", run=run), found.state(run)) == (4, "running")
    assert found.value("rl_run_writer_present", run=run) == 1


def test_a_trainer_is_waited_for_and_one_that_dies_stops_its_run_until_it_is_back(
    serve: Serve, folder: Path, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    trainer.text = None
    served, run = serve(*trainer.flags), trainer.address
    served.until(lambda: served.scrape().value("stepwatch_target_up", source="prometheus_page") == 0)
    assert served.scrape().value("stepwatch_target_answered_timestamp_seconds") is None
    makes_steps(served, trainer, run, 8, 9)
    monkeypatch.setattr(module, "AWAY_SECONDS", 3600.0)
    trainer.text = None
    served.until(lambda: served.scrape().value("stepwatch_target_up") == 0)
    assert served.scrape().state(run) == "running"
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.5)
    in_states(served, **{run: "stopped"})
    assert served.scrape().value("rl_run_writer_present", run=run) == 0
    assert (served.scrape().value("stepwatch_target_errors_total") or 0) >= 2
    append(folder / "a.jsonl", verl_json(1, measured(1)))
    at(served, "a", 1)  # logs are read meanwhile
    trainer.step(10)
    in_states(served, **{run: "running", "a": "running"})
    assert served.scrape().value("rl_resumes_total", run=run) == 0
    assert logged == [f"{trainer.url}/metrics answers 503 Service Unavailable."] * 2


def test_a_restart_keeps_what_the_page_does_not_tell_again(
    serve: Serve, tmp_path: Path, trainer: Trainer
) -> None:
    flags, run = (*trainer.flags, "--state-dir", tmp_path / "state"), trainer.address
    served = serve(*flags)
    for step in range(1, 13):
        trainer.step(step, 0.9 if step == 5 else 0.2 + step % 4 / 100)
        at(served, run, step)

    def lasting() -> dict[Any, float]:
        found = served.scrape().about_run(run)
        return {key: value for key, value in found.items() if key[0] in LASTING}

    before = lasting()
    assert {name for name, _ in before} >= {"rl_best", "rl_noise"}
    served.stop()
    served = serve(*flags)
    at(served, run, 12)
    assert lasting() == before
    trainer.step(13, 0.3)
    at(served, run, 13)
    assert served.scrape().value("rl_records_total", run=run) == 13
    assert served.scrape().value("rl_resumes_total", run=run) == 0


def test_a_resumed_job_is_one_run_and_the_next_job_on_the_page_another(
    serve: Serve, trainer: Trainer
) -> None:
    served = serve(*trainer.flags)
    makes_steps(served, trainer, "maths/ppo", *range(1, 7), 4, 5, 6, 7)
    found = served.scrape()
    assert found.value("rl_resumes_total", run="maths/ppo") == 1
    assert found.value("rl_records_total", run="maths/ppo") == 7
    trainer.step(1, run="maths/sft")
    in_states(served, maths__ppo="stopped", maths__sft="running")


# how targets are polled


class Scripted(FakeTarget):
    """A target of which a test says what each poll does; the last one goes on forever."""

    def __init__(self, *polls: Callable[[], list[Event]]) -> None:
        super().__init__()
        self.script, self.times = list(polls), list[float]()

    def found(self) -> list[Event]:
        self.times.append(time.monotonic())
        return (self.script.pop(0) if len(self.script) > 1 else self.script[0])()


def fails() -> list[Event]:
    raise PollError("http://fake/ gives no answer.")


@pytest.fixture(name="poll")
def _poll() -> Iterator[Callable[..., PolledSource]]:
    """Begin to poll a target."""
    begun: list[PolledSource] = []

    def poll(target: FakeTarget, interval: float = 0.01) -> PolledSource:
        limit, states = RunLimit(MOST_RUNS), State(None)
        more = {"states": states, "lock": Lock(), "limit": limit, "forget_after": 12 * 3600.0}
        begun.append(PolledSource(target, interval=interval, options=Options(), **more))  # type: ignore[arg-type]
        begun[-1].start()
        return begun[-1]

    yield poll
    for each in begun:
        for page in each.pages.values():
            page.stop()


@pytest.mark.slow
def test_a_target_that_fails_is_asked_ever_more_rarely_until_it_answers(
    poll: Callable[..., PolledSource], monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.4)
    target = Scripted(fails, fails, fails, fails, list)
    (page,) = poll(target, 0.2).pages.values()
    eventually(lambda: len(target.times) >= 7)
    gaps = [after - before for before, after in zip(target.times, target.times[1:], strict=False)]
    assert all(gap >= pause for gap, pause in zip(gaps, (0.1, 0.2, 0.4, 0.4), strict=False))
    assert (page.problem, page.errors, logged) == (None, 4, ["http://fake/ gives no answer."])
    rare = Scripted(fails, list)
    poll(rare, 3600.0)
    eventually(lambda: len(rare.times) == 2)  # the first time soon, however long the interval


def test_what_cannot_be_taken_is_a_problem_and_no_end_of_the_polls(
    poll: Callable[..., PolledSource], logged: list[str]
) -> None:
    target = Scripted(lambda: {}["a"], lambda: {}["a"], lambda: [Record(10**400, {}, 1e400)], list)
    target.lacking = ("no experiment 'a'.", "no experiment 'b'.")
    (page,) = poll(target).pages.values()
    eventually(lambda: page.answered)
    target.lacking = ("no experiment 'b'.",)
    polls = target.polls
    eventually(lambda: target.polls > polls + 2)
    assert logged[0] == "http://fake: KeyError, an internal error of Stepwatch"
    assert logged[-2:] == ["no experiment 'a'.", "no experiment 'b'."]
    assert page.errors >= 2


LATER = (5.0, 60.0, 3600.0)  # seconds
STATES = {  # whether it is a trainer's page, and whether it died
    (True, False): ["running", "running", "running"],
    (True, True): ["running", "stopped", "stopped"],
    (False, False): ["running", "running", "stopped"],
    (False, True): ["running", "running", "stopped"],
}


@pytest.mark.parametrize("case", STATES)
def test_a_page_goes_with_its_trainer_and_a_server_outlives_its_runs(
    poll: Callable[..., PolledSource], monkeypatch: pytest.MonkeyPatch, case: tuple[bool, bool]
) -> None:
    monkeypatch.setattr(module, "AWAY_SECONDS", 30.0)
    steps = [lambda step=step: [Record(step, {"reward": step / 7}, run="ppo")] for step in (1, 2, 3)]
    target = Scripted(*steps, fails if case[1] else list)  # type: ignore[arg-type]
    target.reported, target.is_trainer = frozenset({"ppo"}), case[0]
    source = poll(target)
    eventually(lambda: target.polls > 4)
    ((name, run),) = source.run_set.runs.items()
    judge, now = Judge(Silence(), 12 * 3600.0), time.monotonic()
    assert [judge.state(run, source.signs(name, run, now + later)) for later in LATER] == STATES[case]
    assert run.watched


# registered pages


def register(served: Served, *trainers: Trainer) -> None:
    assert served.register({"targets": [trainer.address for trainer in trainers]}).status == 200


def test_a_registered_page_is_a_run_also_after_a_restart_and_its_target_has_the_run_s_name(
    serve: Serve, tmp_path: Path, trainer: Trainer
) -> None:
    flags = ("--state-dir", tmp_path / "state")
    served = serve(*flags)
    register(served, trainer)
    makes_steps(served, trainer, "maths/ppo", 1, 2)
    served.stop()
    served = serve(*flags)
    trainer.step(3, run="maths/ppo")
    at(served, "maths/ppo", 3)
    found = served.scrape()
    assert found.value("stepwatch_registered_servers") == 1
    assert (found.value("rl_records_total", run="maths/ppo"), found.state("maths/ppo")) == (3, "running")
    served.until(lambda: served.listed()[trainer.address].get("run") == "maths/ppo")


def test_a_log_keeps_its_name_beside_another_run_s_page_that_has_it_too(
    serve: Serve, folder: Path, trainer: Trainer
) -> None:
    (folder / "maths").mkdir()
    append(folder / "maths/ppo.jsonl", verl_json(1, {"critic/score/mean": 0.5, "actor/grad_norm": 0.25}))
    served = serve()
    register(served, trainer)
    trainer.step(7, run="maths/ppo")
    at(served, "maths/ppo (/polled/rl_insight maths/ppo)", 7)
    at(served, "maths/ppo", 1)


def test_a_page_that_the_settings_name_is_not_polled_twice_and_one_of_no_trainer_is_no_run(
    serve: Serve, trainers: list[Trainer]
) -> None:
    ours, other = trainers
    other.text = "process_x 1\n"
    served = serve(*ours.flags)
    register(served, ours, other)
    ours.step(1, run="maths/ppo")
    served.until(lambda: served.scrape().value("stepwatch_target_up", source="rl_insight") == 1)
    at(served, "maths/ppo", 1)
    assert served.scrape().runs() == {"maths/ppo"}
    names = {dict(labels)["name"] for labels in served.scrape().all("stepwatch_target_up")}
    assert names == {f"{ours.url}/metrics", f"{other.url}/metrics"}


def test_a_page_that_is_gone_stops_its_run_which_goes_on_at_another_address(
    serve: Serve, trainers: list[Trainer]
) -> None:
    served, (first, second) = serve(), trainers
    register(served, first)
    makes_steps(served, first, "maths/ppo", *range(1, 9))
    first.text = None
    in_states(served, maths__ppo="stopped")
    register(served, second)
    makes_steps(served, second, "maths/ppo", 6, 7, 8, 9, shift=0.05)
    in_states(served, maths__ppo="running")
    assert served.scrape().value("rl_resumes_total", run="maths/ppo") == 1
    assert served.scrape().value("rl_records_total", run="maths/ppo") == 9


def test_two_runs_of_one_name_at_once_are_distinguished(
    serve: Serve, trainers: list[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY_SECONDS", 3600.0)
    served, (first, second) = serve(), trainers
    register(served, first)
    first.step(5, 0.1, "maths/ppo")
    at(served, "maths/ppo", 5)
    second.step(1, 0.9, "maths/ppo")
    register(served, second)
    at(served, f"maths/ppo ({second.address})", 1)
    first.step(6, 0.2, "maths/ppo")
    at(served, "maths/ppo", 6)


def test_so_many_pages_are_polled_and_no_more_and_who_leaves_makes_room(
    serve: Serve, trainers: list[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PAGES", 1)
    served, (first, second) = serve(), trainers
    register(served, first)
    makes_steps(served, first, "maths/ppo", 1, 2)
    register(served, second)  # the last one comes first
    makes_steps(served, second, "maths/sft", 1, 2)
    served.until(lambda: served.scrape().value("stepwatch_registered_pages_left_out") == 1)
    in_states(served, maths__ppo="stopped", maths__sft="running")
    served.register({"job_name": "other", "targets": [second.address]})
    first.step(3, run="maths/ppo")
    in_states(served, maths__ppo="running", maths__sft="stopped")


@pytest.mark.slow
def test_runs_that_no_one_reports_are_forgotten_and_names_that_change_forever_fill_no_memory(
    serve: Serve, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_set, "MOST_OF_LOG", 3)
    served = serve("--forget-after=5")
    register(served, trainer)
    known = served.app._collector.registered
    served.until(lambda: known.pages)
    (page,) = known.pages.values()
    for number in range(8):
        trainer.step(1, number / 10, name := f"maths/{number}")
        served.until(lambda name=name: name in page.names)  # type: ignore[misc]
    assert known.run_set.runs.keys() == known._seen.keys()
    assert len(known.run_set.runs) == 3
    served.until(lambda: known.run_set.runs == known._seen == {})
