"""A trainer's page, polled by a real exporter, and its run on the exporter's own page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from exporter.runs.files.state_file import StateFolder
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Options
from exporter.runs.model.run_set import MOST_RUNS, RunLimit
from exporter.runs.model.run_source import Judge, Silence
from exporter.runs.remote.polled import Feed, Polling
from exporter.runs.remote.web import PollError
from exporter.runs.signals.record import Event, Record
from tests.real import free_port
from tests.real.waiting import eventually
from tests.runs.lines import append, measured, verl_json
from tests.runs.polled import FakeTarget
from tests.runs.scrape import Scrape
from tests.runs.test_main import Exporter, Start, _start, has  # noqa: F401  (a fixture)

LABELS = ("project", "experiment_name")
LASTING = ("rl_best", "rl_start", "rl_noise", "rl_peak", "rl_records_total", "rl_run_start_timestamp_seconds")
"""What a page does not tell a second time."""


class Trainer:
    """Serves what it measures with the client library, at the same address after each start."""

    def __init__(self) -> None:
        self.port = free_port()
        self.run = f"127.0.0.1:{self.port}"
        self._stop: Callable[[], None] | None = None

    def begins(self) -> None:
        self.ends()
        registry = CollectorRegistry()
        self.reward = Gauge("reward_mean", "Mean reward", registry=registry)
        self.entropy = Gauge("entropy", "Entropy of the policy", registry=registry)
        self.kl = Gauge("kl_divergence", "KL to the reference", registry=registry)
        self.insight = Gauge("rl_insight_monitor_critic_score_mean", "x", LABELS, registry=registry)
        self.steps = Counter("training_steps", "Steps", registry=registry)
        server, thread = start_http_server(self.port, "127.0.0.1", registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop

    def makes(self, steps: int, reward: float = 0.5) -> None:
        """The counter moves last, as in a training loop."""
        self.reward.set(reward)
        self.entropy.set(0.7 - reward / 10)
        self.kl.set(reward / 100)
        self.steps.inc(steps)

    def ends(self) -> None:
        if self._stop:
            self._stop()
        self._stop = None

    def flags(self, **more: object) -> list[str]:
        page = {"url": f"http://127.0.0.1:{self.port}/metrics", **more}
        return ["--pages", json.dumps([page]), "--poll", "0.1"]


@pytest.fixture(name="trainer")
def _trainer() -> Iterator[Trainer]:
    trainer = Trainer()
    yield trainer
    trainer.ends()


def at(run: str, step: int) -> Callable[[Scrape], bool]:
    return lambda found: found.value("rl_step", run=run) == step


def streak(found: Scrape, run: str) -> float | None:
    """A statistic that rules look at first, so that only a live step shows it."""
    return found.value("rl_nonfinite_streak_steps", run=run, signal="reward")


def lasting(found: Scrape, run: str) -> dict[object, float]:
    return {key: value for key, value in found.about_run(run).items() if key[0] in LASTING}


def test_each_step_of_a_page_is_a_record_with_its_signals(
    folder: Path, start: Start, trainer: Trainer
) -> None:
    trainer.begins()
    exporter = start("--path", folder, *trainer.flags())
    exporter.until(lambda found: found.value("stepwatch_target_up") == 1)
    for step in range(1, 6):
        trainer.makes(1, reward=step / 10)
        found = exporter.until(at(trainer.run, step))
        assert found.value("rl_reward", run=trainer.run) == pytest.approx(step / 10)
        assert found.value("rl_kl", run=trainer.run) == pytest.approx(step / 1000)

    assert found.value("rl_run_info", run=trainer.run, source="prometheus_page") == 1
    assert found.value("rl_records_total", run=trainer.run) == 5
    assert found.state(trainer.run) == "running"
    assert found.value("rl_run_writer_present", run=trainer.run) == 1


def test_what_a_page_shows_at_first_is_history_and_raises_nothing(
    folder: Path, start: Start, trainer: Trainer
) -> None:
    trainer.begins()
    trainer.makes(700)
    exporter = start("--path", folder, *trainer.flags())
    found = exporter.until(at(trainer.run, 700))
    assert found.value("rl_reward", run=trainer.run) == 0.5
    assert streak(found, trainer.run) is None
    trainer.makes(1, reward=0.4)

    assert streak(exporter.until(at(trainer.run, 701)), trainer.run) == 0


def test_a_page_that_dies_stops_its_run_and_goes_on_after_the_next_start(
    folder: Path, start: Start, trainer: Trainer
) -> None:
    append(folder / "a.jsonl", verl_json(1, measured(1)))
    trainer.begins()
    exporter = start("--path", folder, *trainer.flags())
    exporter.until(lambda found: found.value("stepwatch_target_up") == 1)
    trainer.makes(8)
    exporter.until(at(trainer.run, 8))
    trainer.makes(1)
    exporter.until(at(trainer.run, 9))
    trainer.ends()
    found = exporter.until(lambda found: found.value("stepwatch_target_up") == 0)
    assert found.state(trainer.run) == "running"
    found = exporter.until(lambda found: found.state(trainer.run) == "stopped")
    assert found.value("rl_run_writer_present", run=trainer.run) == 0
    assert (found.value("stepwatch_target_errors_total") or 0) >= 1
    assert (found.value("stepwatch_target_answered_timestamp_seconds") or 0) < time.time() - 30
    append(folder / "a.jsonl", verl_json(2, measured(2)))
    exporter.until(at("a", 2))

    trainer.begins()
    trainer.makes(6)
    found = exporter.until(lambda found: found.state(trainer.run) == "running")
    assert found.value("rl_step", run=trainer.run) == 6
    assert found.value("rl_resumes_total", run=trainer.run) == 0
    code, _, errors = exporter.end()
    assert code == 0
    assert "Traceback" not in errors


def test_a_trainer_that_is_not_there_yet_is_waited_for(folder: Path, start: Start, trainer: Trainer) -> None:
    exporter = start("--path", folder, *trainer.flags())
    found = exporter.until(lambda found: found.value("stepwatch_target_up", source="prometheus_page") == 0)
    assert found.runs() == set()
    assert found.value("stepwatch_target_answered_timestamp_seconds") is None
    trainer.begins()
    trainer.makes(3)

    assert exporter.until(has(trainer.run)).value("rl_step", run=trainer.run) == 3


def test_a_restart_of_the_exporter_keeps_what_the_page_does_not_tell_again(
    folder: Path, tmp_path: Path, start: Start, trainer: Trainer
) -> None:
    trainer.begins()
    flags = ["--path", folder, "--state-dir", tmp_path / "state", *trainer.flags()]
    exporter = start(*flags)
    exporter.until(lambda found: found.value("stepwatch_target_up") == 1)
    for step in range(1, 13):
        trainer.makes(1, reward=0.9 if step == 5 else 0.2 + step % 4 / 100)
        before = exporter.until(at(trainer.run, step))
    assert before.value("rl_best", run=trainer.run, signal="reward") > 0.25  # type: ignore[operator]
    assert before.value("rl_noise", run=trainer.run, signal="reward") is not None
    assert exporter.end()[0] == 0

    again = start(*flags)
    found = again.until(at(trainer.run, 12))
    assert lasting(found, trainer.run) == lasting(before, trainer.run)
    trainer.makes(1, reward=0.3)
    found = again.until(at(trainer.run, 13))
    assert found.value("rl_records_total", run=trainer.run) == 13
    assert found.value("rl_resumes_total", run=trainer.run) == 0
    assert lasting(found, trainer.run).keys() == lasting(before, trainer.run).keys()


def test_a_trainer_that_resumes_after_a_crash_is_one_run_with_one_resume(
    folder: Path, start: Start, trainer: Trainer
) -> None:
    trainer.begins()
    exporter = start("--path", folder, *trainer.flags(run="ppo"))
    exporter.until(lambda found: found.value("stepwatch_target_up") == 1)
    for step in range(1, 7):
        trainer.makes(1, reward=step / 10)
        exporter.until(at("ppo", step))
    trainer.begins()
    trainer.makes(4, reward=0.41)
    exporter.until(at("ppo", 4))
    trainer.makes(3, reward=0.7)
    found = exporter.until(at("ppo", 7))

    assert found.value("rl_resumes_total", run="ppo") == 1
    assert found.value("rl_records_total", run="ppo") == 7


def test_the_next_job_on_the_same_page_is_another_run_and_the_old_one_is_gone(
    folder: Path, start: Start, trainer: Trainer
) -> None:
    trainer.begins()
    trainer.insight.labels("maths", "ppo").set(0.1)
    exporter = start("--path", folder, *trainer.flags())
    exporter.until(has("maths/ppo"))
    trainer.insight.labels("maths", "ppo").set(0.2)
    exporter.until(lambda found: found.value("rl_step", run="maths/ppo") == 2)
    trainer.begins()
    trainer.insight.labels("maths", "sft").set(0.1)

    found = exporter.until(lambda found: found.state("maths/ppo") == "stopped")
    assert found.state("maths/sft") == "running"


# signs of life


def polling() -> Polling:
    """As often as can be."""
    limit, health = RunLimit(MOST_RUNS), Health()
    return Polling(0.01, Options(), StateFolder(None), Lock(), limit, health, forget_after=12 * 3600.0)


class Reported(FakeTarget):
    """A target that reports one step at each poll, until it fails."""

    name = "reported"
    reported = frozenset({"ppo"})

    def __init__(self, *, is_trainer: bool) -> None:
        super().__init__()
        self.is_trainer = is_trainer
        self.failing = False

    def poll(self) -> list[Event]:
        if self.failing:
            raise PollError("reported: no answer")
        return super().poll()

    def found(self) -> list[Event]:
        return [Record(self.polls, {"reward": self.polls / 7}, run="ppo")] if self.polls < 4 else []


@pytest.mark.parametrize(
    ("is_trainer", "failing", "states"),
    [
        (True, False, ["running", "running", "running"]),
        (True, True, ["running", "stopped", "stopped"]),
        (False, False, ["running", "running", "stopped"]),
        (False, True, ["running", "running", "stopped"]),
    ],
    ids=["page", "page that died", "server", "server that died"],
)
def test_a_page_goes_with_its_trainer_and_a_server_outlives_its_runs(
    *, is_trainer: bool, failing: bool, states: list[str]
) -> None:
    target = Reported(is_trainer=is_trainer)
    feed = Feed(target, polling())
    feed.start()
    eventually(lambda: target.polls > 4)
    target.failing = failing
    eventually(lambda: not failing or feed.poller.problem is not None)
    feed.poller.stop()
    ((name, run),) = feed.run_set.runs.items()
    judge, now = Judge(Silence(), 12 * 3600.0), time.monotonic()

    assert run.watched
    assert [judge.state(run, feed.signs(name, run, now + later)) for later in (5.0, 60.0, 3600.0)] == states
