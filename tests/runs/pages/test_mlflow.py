from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.http_client import Reply
from exporter.runs.pages import mlflow
from exporter.runs.pages.mlflow import Followed, Mlflow
from exporter.runs.pages.web import PollError
from exporter.runs.signals.record import Ended, Event, Record, is_step, number
from tests.real.mlflow import MlflowClient, MlflowServer
from tests.runs.speaking import Speaking, says
from tests.runs.test_main import Exporter, Start, _start, has  # noqa: F401  (a fixture)

NOW = int(time.time() * 1000) - 600_000
"""When the tests' trainers log their first step, in ms: ten minutes ago."""

OLD = NOW - 10 * 86_400_000


@pytest.fixture(name="client", scope="module")
def _client() -> Iterator[tuple[MlflowClient, str]]:
    with MlflowServer() as server, MlflowClient(server.url) as client:
        yield client, server.url


class Experiment:
    """An experiment of a test's own on the server, with the requests that are made."""

    def __init__(self, client: MlflowClient, server: str, name: str) -> None:
        self.client, self.server, self.name = client, server, name
        self.id = client("experiment", name)

    def run(self, name: str = "ppo", started: int = NOW) -> str:
        return str(self.client("run", self.id, name, started))

    def log(self, run: str, *steps: int, at: int = NOW, **metrics: float) -> None:
        """The same metrics for each step, a second apart; ``__`` in a name stands for ``/``."""
        rows = [
            (key.replace("__", "/"), value, at + 1000 * number, step)
            for number, step in enumerate(steps)
            for key, value in metrics.items()
        ]
        self.client("log", run, rows)

    def watch(self, **more: Any) -> Mlflow:
        return Mlflow(self.server, experiments=(self.name,), **more)


@pytest.fixture(name="experiment")
def _experiment(client: tuple[MlflowClient, str], request: pytest.FixtureRequest) -> Experiment:
    return Experiment(*client, request.node.name)


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of the requests that go out."""
    asked: list[str] = []
    get = mlflow.web.get

    def listening(url: str, *rest: Any) -> Reply:
        asked.append(url.partition("/mlflow/")[2].partition("?")[0])
        return get(url, *rest)

    monkeypatch.setattr(mlflow.web, "get", listening)
    return asked


def steps(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Record)]


ENDS = [("FINISHED", "finished"), ("FAILED", "failed"), ("KILLED", "failed"), (None, "stopped")]


@pytest.mark.parametrize(("status", "state"), ENDS)
def test_a_run_is_shown_from_its_history_to_its_end_as_the_server_says_or_by_its_silence(
    experiment: Experiment, folder: Path, start: Start, status: str | None, state: str
) -> None:
    """Of a client that was killed the server says that its run goes on."""
    flags = ("--mlflow", json.dumps([{"url": experiment.server, "experiments": [experiment.name]}]))
    with MlflowClient(experiment.server) as trainer:
        now = int(time.time() * 1000)
        run, shown = trainer("run", experiment.id, "ppo", now), f"{experiment.name}/ppo"
        for step in (1, 2, 3):
            trainer("log", run, [("critic/score/mean", step / 8, now - 3000 + 1000 * step, step)])
        exporter = start("--path", folder, *flags, "--poll", "0.2", "--silence", "20")
        found = exporter.until(has(shown))
        assert found.value("rl_run_info", run=shown, source="mlflow", framework="verl") == 1
        assert found.value("rl_records_total", run=shown) == 3
        trainer("log", run, [("critic/score/mean", 0.75, int(time.time() * 1000), 4)])
        found = exporter.until(lambda found: found.value("rl_step", run=shown) == 4)
        assert (found.value("rl_reward", run=shown), found.state(shown)) == (0.75, "running")
        if status:
            trainer("status", run, status)
        trainer.kill()
        exporter.until(lambda found: found.state(shown) == state)


def test_a_long_history_comes_in_pages_and_goes_on_from_the_last_one(
    experiment: Experiment, asked: list[str]
) -> None:
    run = experiment.run()
    experiment.log(run, *range(1, 1201), reward=0.5)
    watch = experiment.watch()
    assert steps(watch.read()) == list(range(1, 1201))
    assert asked.count("metrics/get-history") == 3
    asked.clear()
    experiment.log(run, *range(1201, 1204), at=NOW + 1_201_000, reward=0.5)
    assert steps(watch.read()) == [1201, 1202, 1203]
    assert asked.count("metrics/get-history") == 1


def test_each_step_comes_once_and_the_end_after_it_and_a_resume_goes_back(experiment: Experiment) -> None:
    run, name = experiment.run(), f"{experiment.name}/ppo"
    experiment.log(run, 1, 2, reward=0.5, kl=0.1)
    watch = experiment.watch()
    assert steps(watch.read()) == [1, 2]
    experiment.client("log", run, [["system/cpu_utilization_percentage", 50.0, NOW + 500, 0]])
    assert watch.read() == []  # MLflow's own measurements of the machine are no steps
    experiment.log(run, 3, 4, at=NOW + 2000, reward=0.5, kl=0.1)
    experiment.client("status", run, "FAILED")
    events = watch.read()
    assert (steps(events), events[2:]) == ([3, 4], [Ended("failed", run=name)])
    assert watch.read() == []
    experiment.client("status", run, "RUNNING")
    experiment.log(run, 3, 4, 5, at=NOW + 60_000, reward=0.75, kl=0.1)
    assert steps(watch.read()) == [3, 4, 5]
    experiment.client("status", run, "FAILED")
    assert watch.read() == [Ended("failed", run=name)], "its second end"
    assert steps(experiment.watch().read()) == [1, 2, 3, 4, 3, 4, 5], "the same for one who comes later"


def test_all_runs_are_found_and_those_of_one_name_distinguished(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow, "MOST_RUNS", 2)
    ids = [experiment.run(name, NOW + delay) for delay, name in enumerate(("a", "b", "ppo", "ppo", "c"))]
    for run in reversed(ids):
        experiment.log(run, 1, reward=0.5)
    names = {event.run for event in experiment.watch().read() if isinstance(event, Record)}
    assert names == {f"{experiment.name}/{name}" for name in ("a", "b", "ppo", ids[3], "c")}


def test_runs_of_long_ago_are_not_fetched_ended_or_not(experiment: Experiment, asked: list[str]) -> None:
    for status in ("FINISHED", "RUNNING"):
        run = experiment.run(started=OLD)
        experiment.log(run, 1, at=OLD, reward=0.5)
        if status != "RUNNING":
            experiment.client("status", run, status, OLD + 5000)
    assert experiment.watch(since=3600).read() == []
    assert "metrics/get-history" not in asked
    assert len(experiment.watch(since=20 * 86400).read()) == 3


def test_a_run_that_is_named_by_its_id_is_followed_with_all_numbers_of_a_step_and_its_time(
    experiment: Experiment,
) -> None:
    experiment.run("other")
    run = experiment.run("mine")
    logged = {"critic/score/mean": 0.5, "a": math.nan, "b": math.inf, "c": -math.inf, "d": 1e300}
    experiment.log(run, 1, 2, **logged)
    for step, record in enumerate(Mlflow(experiment.server, run_ids=(run,)).read()):
        assert isinstance(record, Record)
        values = sorted((key, number(value)) for key, value in record.values.items())
        assert (record.step, repr(values)) == (step + 1, repr(sorted(logged.items())))
        assert (record.time, record.run) == (NOW / 1000 + step, f"{experiment.name}/mine")


def test_an_experiment_or_run_that_is_missing_hides_no_other(experiment: Experiment) -> None:
    run = experiment.run("ppo")
    experiment.log(run, 1, reward=0.5)
    later = f"{experiment.name} later"
    watch = Mlflow(experiment.server, experiments=(later, experiment.name), run_ids=("0" * 32, run))
    assert steps(watch.read()) == [1]
    lacking = [
        f"{experiment.server} has no experiment {later!r}. Fix: use a name that the server's page lists.",
        f"{experiment.server} has no run '{'0' * 32}'. Fix: copy the id from the run's page.",
    ]
    assert list(watch.lacking) == lacking
    with pytest.raises(PollError) as caught:
        Mlflow(experiment.server, experiments=(later,)).read()
    assert str(caught.value) == lacking[0]
    created = Experiment(experiment.client, experiment.server, later)
    created.log(created.run("ppo"), 1, 2, reward=0.5)
    experiment.log(run, 2, at=NOW + 1000, reward=0.5)
    found = {(event.run, event.step) for event in watch.read() if isinstance(event, Record)}
    assert found == {(f"{experiment.name}/ppo", 2), (f"{later}/ppo", 1), (f"{later}/ppo", 2)}
    assert len(watch.lacking) == 1


def test_a_poll_that_fails_half_way_loses_nothing(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, started in (("a", NOW), ("b", NOW + 1)):
        experiment.log(experiment.run(name, started), 1, 2, reward=0.5, kl=0.1)
    watch = experiment.watch()
    get, left = mlflow.web.get, 6  # an experiment, two searches, three of four histories

    def failing(url: str, *rest: Any) -> Reply:
        nonlocal left
        left -= 1
        if left < 0:
            raise PollError("gone")
        return get(url, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.web, "get", failing)
        with pytest.raises(PollError, match="gone"):
            watch.read()
    found = [(event.run[-1], event.step, len(event.values)) for event in watch.read()]
    assert found == [("a", 1, 2), ("a", 2, 2), ("b", 1, 2), ("b", 2, 2)]


def test_the_token_is_read_at_each_poll_and_no_message_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with Speaking(says(b"s3cret", 403)) as server:
        watch = Mlflow(server.url, run_ids=("1",), token_file=str(file))
        for token in ("s3cret", "second"):
            file.write_text(f"{token}\n")
            with pytest.raises(PollError) as caught:
                watch.read()
            fix = " answers 403 Forbidden. Fix: put a valid token into the token file."
            assert str(caught.value).endswith(fix)
    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer s3cret", "Bearer second"]
    for content in (None, b"", b"two words", b"a\nb", b"\xff"):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(PollError, match=rf"^The token file {file} ") as caught:
            watch.read()
        assert "words" not in str(caught.value)


# Servers that are none


WORDS = """run runs info data metrics key value timestamp step run_id status experiment_id experiment name
    start_time end_time next_page_token"""
KEYS = st.sampled_from(WORDS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
METRIC = st.fixed_dictionaries(
    {"key": KEYS, "value": JSON, "timestamp": st.integers()}, optional={"step": st.integers()}
)
METRICS = st.lists(METRIC, max_size=4)


NOISE = st.dictionaries(st.integers(0, 9), JSON | st.binary(), max_size=3)


@pytest.mark.slow
@given(latest=METRICS, history=METRICS, noise=NOISE)
def test_arbitrary_answers_give_records_of_steps_or_an_error_and_nothing_else(
    latest: list[Any], history: list[Any], noise: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"info": {"run_id": "r", "experiment_id": "1"}, "data": {"metrics": latest}}
    experiment = {"experiment": {"name": "e", "experiment_id": "1"}}
    answers: dict[str, Any] = {"runs/get": {"run": run}, "runs/search": {"runs": [run]}}
    answers |= {"metrics/get-history": {"metrics": history}}
    answers |= dict.fromkeys(("experiments/get", "experiments/get-by-name"), experiment)
    asked = 0

    def get(url: str, *_: object) -> Reply:
        nonlocal asked
        asked += 1
        answer = noise.get(asked, answers[url.partition("/mlflow/")[2].partition("?")[0]])
        return Reply(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.web, "get", get)
        watch = Mlflow("http://tracking", experiments=("e",), run_ids=("r",), since=1e300)
        for _ in range(3):
            with suppress(PollError):
                assert all(is_step(step) for step in steps(watch.read()))


@pytest.mark.parametrize(
    ("body", "fix"), [(b"<html>", "the server's address"), (b"{}", "an MLflow server of version 2 or later")]
)
def test_a_server_that_is_not_a_mlflow_is_named_with_the_fix(body: bytes, fix: str) -> None:
    with Speaking(says(body)) as server, pytest.raises(PollError, match=f"^{server.url} .*{fix}\\.$"):
        Mlflow(server.url, run_ids=("1",)).read()


def test_a_server_that_has_always_the_same_next_page_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = {"key": "reward", "value": 0.5, "timestamp": NOW, "step": 1}
    run = {"info": {"run_id": "r", "experiment_id": "1"}, "data": {"metrics": [metric]}}
    answer = {"runs": [run], "metrics": [metric], "experiment": {"experiment_id": "1", "name": "e"}}
    again = json.dumps({**answer, "next_page_token": "again"}).encode()
    monkeypatch.setattr(mlflow.web, "get", lambda *_: Reply(200, again))
    found = Mlflow("http://tracking", experiments=("e",)).read()
    assert found == [Record(1, {"reward": 0.5}, NOW / 1000, run="e/r")]


# Putting values into steps


@given(data=st.data(), attempts=st.lists(st.integers(2, 6), min_size=1, max_size=3))
def test_values_of_a_step_come_together_however_they_are_stamped(
    data: st.DataObject, attempts: list[int]
) -> None:
    history = Followed("run")
    for begin, length in zip(range(0, 1000, 100), attempts, strict=False):
        for key in ("a", "b"):  # one metric is logged in order; two are not stamped in step
            times = data.draw(st.lists(st.integers(begin, begin + 50), min_size=length, max_size=length))
            history.fresh += [(stamp, step, key, 0.5) for step, stamp in enumerate(sorted(times), start=1)]
    found = [(record.step, set(record.values)) for record in history.records()]
    assert found == [(step, {"a", "b"}) for length in attempts for step in range(1, length + 1)]


def test_a_value_that_comes_after_a_later_step_was_passed_on_does_not_look_like_a_resume() -> None:
    run = Followed("run", fresh=[(1, 1, "a", 0.5), (1, 1, "b", 0.5), (2, 2, "a", 0.5)])
    assert steps(list(run.records())) == [1, 2]
    run.fresh += [(3, 2, "b", 0.5), (4, 1, "late", 0.5), (5, 3, "a", 0.5)]
    assert steps(list(run.records())) == [2, 3]
