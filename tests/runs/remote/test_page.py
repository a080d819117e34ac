from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    Summary,
    start_http_server,
)

from exporter.http_client import LIMIT, Reply
from exporter.runs.remote.page import SERIES_LIMIT, Found, Page, by_run
from exporter.runs.remote.web import PollError
from exporter.runs.signals.record import Record
from tests.real.waiting import in_time
from tests.runs.speaking import Speaking, says

LABELS = ("project", "experiment_name")


class Trainer:
    """A trainer that serves its metrics with the client library, and what a page makes of it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._server, self._thread = start_http_server(0, "127.0.0.1", self.registry)
        self.url = f"http://127.0.0.1:{self._server.server_port}/metrics"
        self.default = f"127.0.0.1:{self._server.server_port}"

    def gauge(self, name: str, text: str = "x", labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(name="trainer")
def _trainer() -> Iterator[Trainer]:
    trainer = Trainer()
    yield trainer
    trainer.stop()


def served(text: str | bytes, **headers: str) -> Speaking:
    body = text if isinstance(text, bytes) else text.encode()
    return Speaking(says(body, **({"Content_Type": "text/plain; version=0.0.4"} | headers)))


def one(page: Page) -> Record:
    (record,) = page.poll()
    assert isinstance(record, Record)
    return record


# Steps


def test_before_the_first_step_the_zeros_of_a_client_library_are_no_rewards(trainer: Trainer) -> None:
    steps = Counter("verl_training_steps_total", "x", registry=trainer.registry)
    trainer.gauge("verl_average_reward")
    page = Page(trainer.url)

    assert page.poll() == []
    steps.inc()
    assert one(page).values == {"verl_average_reward": 0.0}


def test_without_a_counter_a_change_of_a_value_is_a_step(trainer: Trainer) -> None:
    names = ("reward_mean", "reward_std", "kl_divergence", "entropy", "critic_loss", "actor_loss")
    gauges = {name: trainer.gauge(name) for name in (*names, "rollout_latency_seconds")}
    page = Page(trainer.url)

    assert page.poll() == [], "nothing was set yet"
    gauges["reward_mean"].set(0.5)
    assert one(page).step == 1
    assert page.poll() == []
    gauges["kl_divergence"].set(math.nan)
    record = one(page)
    assert record.step == 2
    assert set(record.values) == set(gauges)
    assert math.isnan(record.values["kl_divergence"])
    assert page.poll() == [], "NaN is no change of NaN"


def test_what_the_machine_does_meanwhile_is_not_a_step(trainer: Trainer) -> None:
    trainer.gauge("reward_mean").set(0.5)
    gpu = trainer.gauge("gpu_utilization")
    memory = trainer.gauge("verl_gpu_memory_used_bytes", labels=("gpu",))
    page = Page(trainer.url)
    page.poll()

    gpu.set(93)
    memory.labels("0").set(7e10)

    assert page.poll() == []


@pytest.mark.parametrize(
    "name",
    ["training_global_step", "verl_global_step", "global_step", "train_steps_total", "trainer_step", "step"],
)
def test_likely_names_of_the_step_counter_are_known(name: str) -> None:
    with served(f"reward_mean 0.5\n{name} 37\n") as server:
        assert one(Page(server.url)).step == 37


def test_a_step_counter_may_be_called_as_the_trainer_logs_it() -> None:
    with served('reward_mean 0.5\n{"rl_insight_monitor_training/global_step"} 37\n') as server:
        assert one(Page(server.url)).step == 37


@pytest.mark.parametrize(
    "name",
    ["total_training_steps", "max_global_steps", "num_train_steps", "warmup_steps", "time_per_train_step"],
)
def test_a_planned_number_of_steps_or_a_time_is_not_a_step_counter(name: str) -> None:
    with served(f"reward_mean 0.5\n{name} 37\n") as server:
        assert one(Page(server.url)) == Record(
            1, {"reward_mean": 0.5, name: 37}, run=server.url.removeprefix("http://")
        )


def test_a_named_counter_is_used_and_missed_when_it_is_not_there(trainer: Trainer) -> None:
    trainer.gauge("reward_mean").set(0.5)
    trainer.gauge("global_step").set(4)
    page = Page(trainer.url, step="my_updates")

    with pytest.raises(PollError) as caught:
        page.poll()
    assert str(caught.value) == (
        f"{trainer.url} has a trainer's metrics, but no 'my_updates', the configured step metric. Fix: set "
        "`step` to a metric of that page, or to null."
    )
    trainer.gauge("my_updates").set(9)
    assert one(page).step == 9


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300"])
def test_a_counter_that_shows_no_step_makes_no_record(value: str) -> None:
    with served(f"reward_mean 0.5\nglobal_step {value}\n") as server:
        assert Page(server.url).poll() == []


# rl-insight


def test_rl_insights_gauges_of_two_runs_are_distinguished_by_project_and_experiment(trainer: Trainer) -> None:
    reward = trainer.gauge("rl_insight_monitor_critic_score_mean", labels=LABELS)
    step = trainer.gauge("rl_insight_monitor_training_global_step", labels=LABELS)
    for experiment, score, at in (("ppo", 0.25, 3), ("grpo", 0.5, 9)):
        reward.labels("gsm8k", experiment).set(score)
        step.labels("gsm8k", experiment).set(at)
    page = Page(trainer.url)

    assert page.poll() == [
        Record(3, {"critic_score_mean": 0.25}, run="gsm8k/ppo"),
        Record(9, {"critic_score_mean": 0.5}, run="gsm8k/grpo"),
    ]
    step.labels("gsm8k", "grpo").set(10)
    assert page.poll() == [Record(10, {"critic_score_mean": 0.5}, run="gsm8k/grpo")]


def test_names_that_need_quotes_come_as_they_were_registered(trainer: Trainer) -> None:
    name = "rl_insight_monitor_val-core_gsm8k_reward_mean@1"
    trainer.gauge(name, labels=LABELS).labels("gsm8k", "ppo").set(0.75)

    assert one(Page(trainer.url)).values == {"val-core_gsm8k_reward_mean@1": 0.75}


# Runs and series


@pytest.mark.parametrize(
    ("labels", "given", "expected"),
    [
        ('{project="p",experiment_name="e",run="r"}', "mine", "p/e"),
        ('{project="",experiment_name="e"}', "mine", "e"),
        ('{run="r"}', "mine", "r"),
        ("", "mine", "mine"),
    ],
)
def test_labels_name_the_run_and_else_the_user_does(labels: str, given: str, expected: str) -> None:
    with served(f"reward_mean{labels} 0.5\n") as server:
        assert one(Page(server.url, run=given)).run == expected


def test_of_several_series_with_one_name_the_first_has_it_alone(trainer: Trainer) -> None:
    reward = trainer.gauge("reward_mean", labels=("split",))
    reward.labels("train").set(0.5)
    reward.labels("eval").set(0.75)

    assert one(Page(trainer.url)).values == {"reward_mean": 0.5, 'reward_mean{split="eval"}': 0.75}


def test_metrics_of_others_beside_a_trainers_are_left_out(trainer: Trainer) -> None:
    trainer.gauge("reward_mean").set(0.5)
    for name in ("vllm:kv_cache_usage_perc", "ray_node_cpu_utilization", "rl_reward", "stepwatch_runs"):
        trainer.gauge(name).set(7)
    Info("verl_build", "x", registry=trainer.registry).info({"version": "0.9"})
    Counter("verl_samples", "x", registry=trainer.registry).inc(8)  # has a _created series besides

    assert one(Page(trainer.url)).values == {"reward_mean": 0.5, "verl_samples_total": 8}


# Histograms and summaries


@pytest.mark.parametrize("kind", [Histogram, Summary])
def test_a_distribution_gives_the_mean_since_the_last_step(trainer: Trainer, kind: Any) -> None:
    seconds = kind("verl_sample_generation_seconds", "x", registry=trainer.registry)
    steps = Counter("verl_training_steps_total", "x", registry=trainer.registry)
    page = Page(trainer.url)
    means = []
    seconds.observe(1000)  # by whom and when is not known
    steps.inc()
    page.poll()

    for observed in ([2.0, 4.0], [], [7.0]):
        for value in observed:
            seconds.observe(value)
        steps.inc()
        means.append(one(page).values.get("verl_sample_generation_seconds"))

    assert means == [3.0, None, 7.0]


def test_what_was_observed_in_the_first_step_counts_if_its_begin_was_seen(trainer: Trainer) -> None:
    seconds = Summary("verl_sample_generation_seconds", "x", registry=trainer.registry)
    steps = Counter("verl_training_steps_total", "x", registry=trainer.registry)
    page = Page(trainer.url)
    page.poll()

    seconds.observe(5)
    steps.inc()

    assert one(page).values == {"verl_sample_generation_seconds": 5.0}


def test_a_distribution_that_began_again_is_counted_from_zero() -> None:
    text = "# TYPE verl_seconds summary\nverl_seconds_sum {}\nverl_seconds_count {}\nglobal_step {}\n"
    pages = [text.format(100, 10, 5), text.format(6, 3, 6)]
    with Speaking(
        lambda handler: handler.wfile.write(b"HTTP/1.0 200\r\n\r\n" + pages.pop(0).encode())
    ) as server:
        page = Page(server.url)
        page.poll()

        assert one(page).values == {"verl_seconds": 2.0}


def test_a_page_with_the_line_ends_of_windows_is_the_same_page() -> None:
    text = "# TYPE verl_seconds summary\r\nverl_seconds_sum 6\r\nverl_seconds_count 3\r\n"

    assert by_run(text, "run") == {"run": Found(totals={"verl_seconds": (6.0, 3.0)}, known=True)}


# What is no page


@pytest.mark.parametrize(
    "text",
    [
        "<!doctype html>\n<html><body>Grafana</body></html>",
        '{"status": "ok"}',
        "reward_mean zero\n",
        "reward_mean\n",
        'reward_mean{a="b} 1\n',
        "reward_mean 0.5 what\n",
        f"reward_mean 1{'0' * 400}\n",
    ],
)
def test_what_is_not_a_page_of_metrics_is_named_with_the_fix(text: str) -> None:
    with served(text, Content_Type="text/html; charset=utf-8") as server, pytest.raises(PollError) as caught:
        Page(server.url).poll()

    message = str(caught.value)
    assert message.startswith(f"{server.url} is not a page of metrics in Prometheus's text format: ")
    assert message.endswith(
        ". It is an answer of type text/html. Fix: give the address that ends in /metrics, as a rule."
    )


def test_a_page_with_the_wrong_type_but_the_right_text_is_read() -> None:
    with served("reward_mean 0.5\n", Content_Type="text/html") as server:
        assert one(Page(server.url)).values == {"reward_mean": 0.5}


def test_an_empty_page_is_a_trainer_that_has_not_begun() -> None:
    with served("\n# EOF\n") as server:
        assert Page(server.url).poll() == []


def test_a_page_with_too_many_series_is_refused() -> None:
    text = "".join(f'reward_mean{{sample="{number}"}} 1\n' for number in range(SERIES_LIMIT + 1))
    with served(text) as server, pytest.raises(PollError, match="more than 20000 series"):
        Page(server.url).poll()


@pytest.mark.slow
@pytest.mark.parametrize("length", [1900, LIMIT])
def test_the_worst_page_of_full_size_takes_seconds_not_hours(length: int) -> None:
    # The parser goes over a line again for each label and each escaped quote.
    line = "".join(['reward_mean{a="', '\\"' * (length // 2 - 20), '"} 1\n'])
    text = line * (LIMIT // len(line))
    began = time.monotonic()

    by_run(text, "run")

    assert in_time(time.monotonic() - began, 30)


FLOATS = st.floats()
KINDS = st.sampled_from(["gauge", "counter", "summary", "histogram", "x"])
NAMES = st.sampled_from(["reward_mean", "verl_x", '{"rl_insight_monitor_a@1"}', "global_step", "a:b", ""])
LINES = st.one_of(
    st.builds("{}{} {}".format, NAMES, st.text(max_size=20), st.text(max_size=20)),
    st.builds("{} {}".format, NAMES, st.one_of(FLOATS, st.integers())),
    st.builds("# TYPE {} {}".format, NAMES, KINDS),
    st.builds("verl_x_{} {}".format, st.sampled_from(["sum", "count", 'sum{a="b"}', 'count{a="b"}']), FLOATS),
    st.text(),
)


@given(pages=st.lists(st.one_of(st.lists(LINES).map("\n".join), st.text()), min_size=1, max_size=3))
def test_arbitrary_pages_give_records_or_an_error_and_nothing_else(
    pages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [page.encode("utf-8", "surrogatepass") for page in pages]
    with monkeypatch.context() as patch:
        patch.setattr("exporter.runs.remote.web.get", lambda *_: Reply(200, left.pop(0)))
        page = Page("http://trainer/metrics")
        for _ in pages:
            try:
                records = page.poll()
            except PollError:
                continue
            for record in records:
                assert isinstance(record, Record)
                assert record.step > 0
                assert record.run
                assert all(isinstance(value, float) for value in record.values.values())
