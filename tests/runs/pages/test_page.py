"""What is read from trainers' Prometheus pages: steps, runs, values; and what is not one."""

from __future__ import annotations

import math
import time
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

Seen = list[tuple[str, int, dict[str, Any]]]
INSIGHT = "rl_insight_monitor_"


@pytest.fixture(name="polled")
def _polled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Poll a page that says these texts one after another; gives run, step and values of each poll."""

    def polled(*texts: str, kind: type[Page] = Page, **settings: Any) -> list[Seen]:
        left = [Reply(200, text.encode("utf-8", "surrogatepass"), "text/html") for text in texts]
        monkeypatch.setattr(web, "get", lambda *_: left.pop(0) if len(left) > 1 else left[0])
        monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
        page = kind("trainer:9092" if kind is MonitorPage else "http://trainer:9092/metrics", **settings)
        found: list[Seen] = []
        for _ in texts:
            events = [event for event in page.poll() if isinstance(event, Record)]
            found.append([(event.run, event.step, dict(event.values)) for event in events])
        return found

    return polled


RUN = "trainer:9092"
SECONDS = "# TYPE verl_seconds summary\nverl_seconds_sum {}\nverl_seconds_count {}\nglobal_step {}\n"
LABELS = ('project="p",experiment_name="e",run="r"', 'project="",experiment_name="f"')
CASES: dict[str, tuple[list[str], list[Seen]]] = {
    "zeros before the first step are no rewards": (
        ["reward_mean 0\nsteps_total 0\n", "reward_mean 0\nsteps_total 1\n"],
        [[], [(RUN, 1, {"reward_mean": 0.0})]],
    ),
    "without a counter, a change is a step, and what is set is not": (
        [
            "reward_mean 0\n",
            "reward_mean 0.5\n",
            "reward_mean 0.5\n",
            "reward_mean NaN\n",
            "reward_mean NaN\n",
        ],
        [[], [(RUN, 1, {"reward_mean": 0.5})], [], [(RUN, 2, {"reward_mean": math.nan})], []],
    ),
    "what the machine does meanwhile is not a step": (
        ["reward_mean 1\ngpu_utilization 1\nx_bytes 1\n", "reward_mean 1\ngpu_utilization 2\nx_bytes 2\n"],
        [[(RUN, 1, {"reward_mean": 1.0, "gpu_utilization": 1.0, "x_bytes": 1.0})], []],
    ),
    "the same step is polled once, a lower one is a resume": (
        [
            "reward_mean 1\nglobal_step 7\n",
            "reward_mean 2\nglobal_step 7\n",
            "reward_mean 3\nglobal_step 4\n",
        ],
        [[(RUN, 7, {"reward_mean": 1.0})], [], [(RUN, 4, {"reward_mean": 3.0})]],
    ),
    "a counter that appears late loses no step": (
        ["reward_mean 1\n", "reward_mean 1\nglobal_step 1\n"],
        [[(RUN, 1, {"reward_mean": 1.0})], [(RUN, 1, {"reward_mean": 1.0})]],
    ),
    "runs differ by project and experiment, else by the label run": (
        ["\n".join((*(f"{INSIGHT}a{{{labels}}} 1" for labels in LABELS), 'reward_mean{run="r"} 3'))],
        [
            [
                ("p/e", 1, {"a": 1}),
                ("f", 1, {"a": 1}),
                ("r", 1, {"reward_mean": 3}),
            ]
        ],
    ),
    "of several series with one name the first has it alone": (
        ['reward_mean{split="train"} 1\nreward_mean{split="eval"} 2\n'],
        [[(RUN, 1, {"reward_mean": 1.0, 'reward_mean{split="eval"}': 2.0})]],
    ),
    "of a distribution, the mean of what was observed since the last step; at first not known by whom": (
        [
            SECONDS.format(*each)
            for each in ((1e3, 1, 1), (1006, 3, 2), (1006, 3, 3), (1013, 4, 4), (6, 3, 5))
        ],
        [
            [(RUN, 1, {})],
            [(RUN, 2, {"verl_seconds": 3.0})],
            [(RUN, 3, {})],
            *([(RUN, n, {"verl_seconds": v})] for n, v in ((4, 7.0), (5, 2.0))),
        ],
    ),
    "what was observed in the first step counts if its begin was seen": (
        [SECONDS.format(0, 0, 0), SECONDS.format(5, 1, 1).replace("\n", "\r\n")],
        [[], [(RUN, 1, {"verl_seconds": 5.0})]],
    ),
    "an empty page is a trainer that has not begun": (["\n# EOF\n"], [[]]),
    "a page without a trainer's metric is no run": (["process_x 1\nvllm:x 2\nspeed 3\n"], [[]]),
}


@pytest.mark.parametrize(("texts", "expected"), CASES.values(), ids=CASES)
def test_each_step_of_a_page_is_a_record(polled: Any, texts: list[str], expected: list[Seen]) -> None:
    assert repr(polled(*texts)) == repr(
        [
            [(run, step, {k: float(v) for k, v in values.items()}) for run, step, values in each]
            for each in expected
        ]
    )


STEPS = (
    "training_global_step",
    "verl_global_step",
    "global_step",
    "train_steps_total",
    "trainer_step",
    "step",
)
OTHERS = (
    "total_training_steps",
    "max_global_steps",
    "num_train_steps",
    "warmup_steps",
    "time_per_train_step",
)


def test_the_step_counter_is_known_by_its_name_and_its_number_must_be_a_step(polled: Any) -> None:
    for name in (*STEPS, f'{{"{INSIGHT}training/global_step"}}'):
        assert polled(f"reward_mean 0.5\n{name} 37\n") == [[(RUN, 37, {"reward_mean": 0.5})]]
    for name in OTHERS:
        assert polled(f"reward_mean 0.5\n{name} 37\n") == [[(RUN, 1, {"reward_mean": 0.5, name: 37.0})]]
    for value in ("NaN", "+Inf", "-1", "1e300"):
        assert polled(f"reward_mean 0.5\nglobal_step {value}\n") == [[]]


def test_a_named_counter_is_used_and_missed_when_it_is_not_there(polled: Any) -> None:
    text = "reward_mean 0.5\nglobal_step 4\n"
    assert polled(f"{text}mine 9\n", step="mine", run="ppo")[0][0][:2] == ("ppo", 9)
    missed = (
        "trainer:9092/metrics has a trainer's metrics, but no 'mine', the configured step metric. Fix: set"
    )
    with pytest.raises(PollError, match=missed):
        polled(text, step="mine")


def test_pages_of_the_client_library_are_read_and_others_metrics_on_them_left_out(polled: Any) -> None:
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
        texts.append(choose_encoder(module._ACCEPT)[0](registry).decode())
    values = {"reward_mean": 7.0, "val-core_gsm8k_reward_mean@1": 0.75, "verl_samples_total": 8.0}
    assert polled(*texts) == [
        [(RUN, 1, values)],
        [(RUN, 2, {**values, "verl_histogram": 3.0, "verl_summary": 3.0})],
    ]


# rl-insight's pages


def insight(step: int, score: float, more: str = "") -> str:
    return f"{INSIGHT}training_global_step {step}\n{INSIGHT}critic_score_mean {score}\n{more}"


def test_a_step_of_rl_insight_is_read_once_two_reads_agree(
    polled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        insight(1, 0.1),
        insight(1, 0.1),
        insight(2, 0.1),
        insight(2, 0.2),
        insight(2, 0.2),
        insight(2, 0.2),
    ]
    found = polled(*texts, kind=MonitorPage)
    assert [each for each in found if each] == [
        [(RUN, 1, {"critic_score_mean": 0.1})],
        [(RUN, 2, {"critic_score_mean": 0.2})],
    ]
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("a page that stands still is read once"))
    page = MonitorPage("trainer:9092")
    page._seen_last = {RUN: by_run(insight(2, 0.2), RUN)[RUN].fingerprint()}
    assert len(page.poll()) == 1


def test_what_was_validated_counts_once_and_alone_is_no_step(polled: Any) -> None:
    scores = [f"{INSIGHT}val_core_x_mean_1 {score}\n" for score in (0.25, 0.25, 0.25, 0.5, 0.5)]
    steps = [scores[0], *(insight(step, step / 10, scores[step]) for step in range(1, 5))]
    texts = [text for text in steps for _ in range(2)]
    found = [each for seen in polled(*texts, kind=MonitorPage) for each in seen]
    assert [(step, values.get("val_core_x_mean_1")) for _, step, values in found] == [
        (1, 0.25),
        (2, None),
        (3, 0.5),
        (4, None),
    ]


def test_a_run_that_left_the_page_for_a_moment_is_known(polled: Any) -> None:
    assert (
        polled(*[insight(7, 0.1)] * 2, *["\n"] * 2, *[insight(7, 0.1)] * 2, kind=MonitorPage)[1:] == [[]] * 5
    )


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
        Page(server.url).poll()
    message = str(caught.value)
    assert message.startswith(f"{server.url} is not a page of metrics in Prometheus's text format: ")
    assert message.endswith(
        ". It is an answer of type text/html. Fix: give the address that ends in /metrics, as a rule."
    )


@pytest.mark.slow
@pytest.mark.parametrize("length", [1900, LIMIT])
def test_the_worst_page_of_full_size_takes_seconds_not_hours(length: int) -> None:
    # the parser goes over a line again for each label and each escaped quote
    line = "".join(['reward_mean{a="', '\\"' * (length // 2 - 20), '"} 1\n'])
    began = time.monotonic()
    by_run(line * (LIMIT // len(line)), "run")
    assert in_time(time.monotonic() - began, 30)


NAMES = st.sampled_from(["reward_mean", "verl_x", '{"rl_insight_monitor_a@1"}', "global_step", "a:b", ""])
LINES = st.one_of(
    st.builds("{}{} {}".format, NAMES, st.text(max_size=20), st.text(max_size=20)),
    st.builds("{} {}".format, NAMES, st.one_of(st.floats(), st.integers())),
    st.builds(
        "# TYPE {} {}".format, NAMES, st.sampled_from(["gauge", "counter", "summary", "histogram", "x"])
    ),
    st.builds(
        "verl_x_{} {}".format, st.sampled_from(["sum", "count", 'sum{a="b"}', 'count{a="b"}']), st.floats()
    ),
    st.text(),
)


@given(pages=st.lists(st.one_of(st.lists(LINES).map("\n".join), st.text()), min_size=1, max_size=3))
def test_arbitrary_pages_give_records_or_an_error_and_nothing_else(pages: list[str]) -> None:
    left = iter(pages)
    page = Page("http://trainer/metrics")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web, "get", lambda *_: Reply(200, next(left).encode("utf-8", "surrogatepass")))
        for _ in pages:
            with suppress(PollError):
                for record in page.poll():
                    assert isinstance(record, Record)
                    assert record.step > 0
                    assert record.run
                    assert all(isinstance(value, float) for value in record.values.values())
