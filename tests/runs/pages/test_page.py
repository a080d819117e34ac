"""What is read from trainers' Prometheus pages: steps, runs, values; and what is not one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Summary
from prometheus_client.exposition import choose_encoder

from exporter.http_client import LIMIT, Reply
from exporter.runs.pages import page as module
from exporter.runs.pages import web
from exporter.runs.pages.page import SERIES_LIMIT, MonitorPage, Page, by_run
from exporter.runs.pages.web import PollError
from exporter.runs.signals.record import Record
from tests.real.waiting import in_time
from tests.runs.speaking import Speaking, says

RUN, URL = "trainer:9092", "http://trainer:9092/metrics"
Seen = list[tuple[str, int, dict[str, Any]]]
Polled = Callable[..., list[Seen]]


@pytest.fixture(name="polled")
def _polled(monkeypatch: pytest.MonkeyPatch) -> Polled:
    """Poll a page that says these texts one after another; gives run, step and values of each poll."""

    def polled(*texts: str, kind: type[Page] = Page, **settings: Any) -> list[Seen]:
        left = [Reply(200, text.encode("utf-8", "surrogatepass"), "text/html") for text in texts]
        monkeypatch.setattr(web, "get", lambda *_: left.pop(0) if len(left) > 1 else left[0])
        monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
        page = kind(URL, **settings)
        found: list[Seen] = []
        for _ in texts:
            events = [event for event in page.read() if isinstance(event, Record)]
            found.append([(event.run, event.step, dict(event.values)) for event in events])
        return found

    return polled


INSIGHT = "rl_insight_monitor_"
SECONDS = "# TYPE verl_seconds summary\nverl_seconds_sum {}\nverl_seconds_count {}\nglobal_step {}\n"
OBSERVED = ((1e3, 1, 1), (1006, 3, 2), (1006, 3, 3), (1013, 4, 4), (6, 3, 5))
LABELS = ('project="p",experiment_name="e",run="r"', 'project="",experiment_name="f"')
R = "reward_mean {}\n"
Expected = Sequence[tuple[int, dict[str, float]] | None]
CASES: dict[str, tuple[list[str], Expected]] = {
    "zeros before the first step are no rewards": (
        [R.format(0) + "steps_total 0\n", R.format(0) + "steps_total 1\n"],
        [None, (1, {"reward_mean": 0.0})],
    ),
    "without a counter, a change is a step, and what is set is not": (
        [R.format(value) for value in (0, 0.5, 0.5, "NaN", "NaN")],
        [None, (1, {"reward_mean": 0.5}), None, (2, {"reward_mean": math.nan}), None],
    ),
    "what the machine does meanwhile is not a step": (
        [f"reward_mean 1\ngpu_utilization {n}\nx_bytes {n}\n" for n in (1, 2)],
        [(1, {"reward_mean": 1.0, "gpu_utilization": 1.0, "x_bytes": 1.0}), None],
    ),
    "the same step is polled once, a lower one is a resume": (
        [f"reward_mean {value}\nglobal_step {step}\n" for value, step in ((1, 7), (2, 7), (3, 4))],
        [(7, {"reward_mean": 1.0}), None, (4, {"reward_mean": 3.0})],
    ),
    "a counter that appears late loses no step": (
        [R.format(1), "reward_mean 1\nglobal_step 1\n"],
        [(1, {"reward_mean": 1.0}), (1, {"reward_mean": 1.0})],
    ),
    "of several series with one name the first has it alone": (
        ['reward_mean{split="train"} 1\nreward_mean{split="eval"} 2\n'],
        [(1, {"reward_mean": 1.0, 'reward_mean{split="eval"}': 2.0})],
    ),
    "of a distribution, the mean of what was observed since the last step; at first not known by whom": (
        [SECONDS.format(*each) for each in OBSERVED],
        [(n, {"verl_seconds": v} if v else {}) for n, v in enumerate((0, 3.0, 0, 7.0, 2.0), 1)],
    ),
    "what was observed in the first step counts if its begin was seen": (
        [SECONDS.format(0, 0, 0), SECONDS.format(5, 1, 1).replace("\n", "\r\n")],
        [None, (1, {"verl_seconds": 5.0})],
    ),
    "an empty page is a trainer that has not begun": (["\n# EOF\n"], [None]),
    "a page without a trainer's metric has no run": (["process_x 1\nvllm:x 2\nspeed 3\n"], [None]),
    **{
        f"{name} counts steps": ([f"{R.format(0.5)}{name} 37\n"], [(37, {"reward_mean": 0.5})])
        for name in (
            *("training_global_step", "verl_global_step", "global_step", "train_steps_total", "trainer_step"),
            *("step", f'{{"{INSIGHT}training/global_step"}}'),
        )
    },
    **{
        f"{name} does not": ([f"{R.format(0.5)}{name} 37\n"], [(1, {"reward_mean": 0.5, name: 37.0})])
        for name in (
            *("total_training_steps", "max_global_steps", "num_train_steps", "warmup_steps"),
            "time_per_train_step",
        )
    },
    **{
        f"{value} is not a step": ([f"{R.format(0.5)}global_step {value}\n"], [None])
        for value in ("NaN", "+Inf", "-1", "1e300")
    },
}


@pytest.mark.parametrize(("texts", "expected"), CASES.values(), ids=CASES)
def test_each_step_of_a_page_is_a_record(polled: Polled, texts: list[str], expected: Expected) -> None:
    assert repr(polled(*texts)) == repr([[(RUN, *each)] if each else [] for each in expected])


def test_runs_differ_by_project_and_experiment_else_by_the_label_run(polled: Polled) -> None:
    text = "\n".join((*(f"{INSIGHT}a{{{labels}}} 1" for labels in LABELS), 'reward_mean{run="r"} 3'))
    assert polled(text) == [[("p/e", 1, {"a": 1}), ("f", 1, {"a": 1}), ("r", 1, {"reward_mean": 3})]]


def test_a_named_counter_is_used_and_missed_when_it_is_not_there(polled: Polled) -> None:
    text = "reward_mean 0.5\nglobal_step 4\n"
    assert polled(f"{text}mine 9\n", step="mine", run="ppo")[0][0][:2] == ("ppo", 9)
    missed = "metrics has a trainer's metrics, but no 'mine', the configured step metric. Fix: set"
    with pytest.raises(PollError, match=missed):
        polled(text, step="mine")


def test_pages_of_the_client_library_are_read_and_others_metrics_on_them_left_out(polled: Polled) -> None:
    registry = CollectorRegistry()
    for name in ("reward_mean", "vllm:kv_cache_usage_perc", "ray_node_cpu", "rl_reward", "stepwatch_runs"):
        Gauge(name, "x", registry=registry).set(7)
    Gauge(f"{INSIGHT}val-core_gsm8k_reward_mean@1", "x", registry=registry).set(0.75)
    Info("verl_build", "x", registry=registry).info({"version": "0.9"})
    Counter("verl_samples", "x", registry=registry).inc(8)
    spread = [kind(f"verl_{kind.__name__.lower()}", "x", registry=registry) for kind in (Histogram, Summary)]
    steps = Counter("verl_training_steps", "x", registry=registry)
    texts = []
    for observed in ((1e3,), (2.0, 4.0)):
        for each in spread:
            for value in observed:
                each.observe(value)
        steps.inc()
        texts.append(choose_encoder(module.ACCEPT)[0](registry).decode())
    values = {"reward_mean": 7.0, "val-core_gsm8k_reward_mean@1": 0.75, "verl_samples_total": 8.0}
    means = {"verl_histogram": 3.0, "verl_summary": 3.0}
    assert polled(*texts) == [[(RUN, 1, values)], [(RUN, 2, {**values, **means})]]


# rl-insight's pages


def insight(step: int, score: float, more: str = "") -> str:
    return f"{INSIGHT}training_global_step {step}\n{INSIGHT}critic_score_mean {score}\n{more}"


def test_a_step_of_rl_insight_is_read_once_two_reads_agree(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [insight(*each) for each in ((1, 0.1), (1, 0.1), (2, 0.1), (2, 0.2), (2, 0.2), (2, 0.2))]
    found = [each for seen in polled(*texts, kind=MonitorPage) for each in seen]
    assert found == [(RUN, n, {"critic_score_mean": value}) for n, value in ((1, 0.1), (2, 0.2))]
    page = MonitorPage(URL)
    page.read()
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("a page that stands still is read once"))
    page.read()


def test_what_was_validated_counts_once_and_alone_is_no_step(polled: Polled) -> None:
    scores = [f"{INSIGHT}val_core_x_mean_1 {score}\n" for score in (0.25, 0.25, 0.25, 0.5, 0.5)]
    steps = [scores[0], *(insight(step, step / 10, scores[step]) for step in range(1, 5))]
    texts = [text for text in steps for _ in range(2)]
    found = [each for seen in polled(*texts, kind=MonitorPage) for each in seen]
    validated = [(step, values.get("val_core_x_mean_1")) for _, step, values in found]
    assert validated == [(1, 0.25), (2, None), (3, 0.5), (4, None)]


def test_a_run_that_left_the_page_for_a_moment_is_known(polled: Polled) -> None:
    there = [insight(7, 0.1)] * 2
    assert polled(*there, "\n", "\n", *there, kind=MonitorPage)[1:] == [[]] * 5


# what is not a page


@pytest.mark.parametrize(
    "text",
    [
        *("<!doctype html>\n<html><body>Grafana</body></html>", '{"status": "ok"}', "reward_mean zero\n"),
        *("reward_mean\n", 'reward_mean{a="b} 1\n', "reward_mean 0.5 what\n", f"reward_mean 1{'0' * 400}\n"),
        "".join(f'reward_mean{{sample="{number}"}} 1\n' for number in range(SERIES_LIMIT + 1)),
    ],
    ids=["html", "json", "word", "nothing", "quote", "more", "huge", "series"],
)
def test_what_is_not_a_page_of_metrics_is_named_with_the_fix(text: str) -> None:
    speak = says(text.encode(), Content_Type="text/html; charset=utf-8")
    with Speaking(speak) as server, pytest.raises(PollError) as caught:
        Page(server.url).read()
    begin, end = f"{server.url} is not a page of metrics in Prometheus's text format: ", " as a rule."
    assert str(caught.value).startswith(begin)
    fix = ". It is an answer of type text/html. Fix: give the address that ends in /metrics,"
    assert str(caught.value).endswith(fix + end)


@pytest.mark.slow
@pytest.mark.parametrize("length", [1900, LIMIT])
def test_the_worst_page_of_full_size_takes_seconds_not_hours(length: int) -> None:
    # the parser goes over a line again for each label and each escaped quote
    line = "".join(['reward_mean{a="', '\\"' * (length // 2 - 20), '"} 1\n'])
    began = time.monotonic()
    by_run(line * (LIMIT // len(line)), "run")
    assert in_time(time.monotonic() - began, 30)


NAMES = st.sampled_from(["reward_mean", "verl_x", '{"rl_insight_monitor_a@1"}', "global_step", "a:b", ""])
TYPES = st.sampled_from(["gauge", "counter", "summary", "histogram", "x"])
TOTALS = st.sampled_from(["sum", "count", 'sum{a="b"}', 'count{a="b"}'])
LINES = st.one_of(
    st.builds("{}{} {}".format, NAMES, st.text(max_size=20), st.text(max_size=20)),
    st.builds("{} {}".format, NAMES, st.one_of(st.floats(), st.integers())),
    st.builds("# TYPE {} {}".format, NAMES, TYPES),
    st.builds("verl_x_{} {}".format, TOTALS, st.floats()),
    st.text(),
)


@given(pages=st.lists(st.one_of(st.lists(LINES).map("\n".join), st.text()), min_size=1, max_size=3))
def test_arbitrary_pages_give_records_or_an_error_and_nothing_else(pages: list[str]) -> None:
    left = iter(pages)
    page = Page(URL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web, "get", lambda *_: Reply(200, next(left).encode("utf-8", "surrogatepass")))
        for _ in pages:
            with suppress(PollError):
                for record in page.read():
                    assert isinstance(record, Record)
                    assert record.step > 0
                    assert record.run
                    assert all(isinstance(value, float) for value in record.values.values())
