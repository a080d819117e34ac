"""What is made of the answers of servers that are odd, slow, or refuse; and which runs are asked about."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

import pytest

from exporter.runs.overview.models import RunId
from exporter.runs.overview.panels import Query
from exporter.runs.overview.prometheus import INTERVAL_SECONDS, Client, Prometheus, Span
from exporter.runs.pages.web import PollError
from tests.real import eventually
from tests.real.waiting import in_time
from tests.runs.speaking import Speaking, says

ALL = ("alerts", "now", "past")
ODD = {
    "no JSON": ALL,
    "[]": ALL,
    '{"status": "success"}': ALL,
    '{"data": null}': ALL,
    '{"data": {"alerts": [{"state": "firing", "labels": {"run": "x"}}]}}': ALL,
    '{"data": {"alerts": [3], "result": [{"metric": {}}]}}': ALL,
    # without a list of alerts there is nothing to go through
    '{"data": {"alerts": {}, "result": [{"metric": {"curve": "7"}, "value": [1, "2"]}]}}': ("now", "past"),
}
"""By body, the questions to which it is no answer."""


def is_refused(ask: Callable[[], object], url: str) -> bool:
    try:
        ask()
    except PollError as problem:
        return str(problem).startswith(f"{url} does not answer like Prometheus")
    return False


@pytest.mark.parametrize(("body", "refused"), ODD.items())
def test_an_answer_that_is_none_of_prometheus_is_an_error_in_words(body: str, refused: Sequence[str]):
    with Speaking(says(body.encode())) as server:
        url = server.url
        questions = Client(url)
        asked: Mapping[str, Callable[[], object]] = {
            "alerts": questions.firing,
            "now": lambda: questions.now([Query("a", "up", "up")]),
            "past": lambda: questions.past(Span(RunId("x"), 0.0, 60.0), [Query("a", "up", "up")]),
        }
        assert [name for name, ask in asked.items() if is_refused(ask, url)] == list(refused)


def test_an_answer_that_is_too_large_or_leads_elsewhere_is_refused():
    for answer, words in (
        (says(b" " * (3 * 1024 * 1024)), "larger than 2 MiB"),
        (says(b"", 302, Location="http://127.0.0.1:1/"), "another server"),
        (says(b"starting", 503), "answers 503"),
    ):
        with Speaking(answer) as server, pytest.raises(PollError, match=words):
            Client(server.url).firing()


def test_a_server_that_never_answers_holds_up_no_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exporter.runs.overview.prometheus.ANSWER_SECONDS", 0.2)
    with Speaking(lambda _: time.sleep(5)) as server:
        prometheus = Prometheus(server.url, lambda: (), lambda: (), lambda: [Span(RunId("x"), 0.0, 1.0)])
        prometheus.start()
        begun = time.monotonic()
        assert prometheus.view(RunId("x")).episodes == ()
        assert prometheus.answers.firing == {}
        assert in_time(time.monotonic() - begun, 0.1), "what is looked at is what is known"
        eventually(lambda: prometheus.errors > 0)
        assert "gives no answer" in prometheus.answers.trouble(time.time())
        prometheus.stop()


def serving(delay: float = 0.0) -> Speaking:
    """A Prometheus without alerts that refuses to tell of the past of runs named ``large``."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if is_refused := "query_range" in handler.path and b"large" in server.asked[-1].body:
            time.sleep(delay)
        says(b'{"data": {"alerts": [], "result": []}}', 422 if is_refused else 200)(handler)

    server = Speaking(answer)
    return server


def test_a_past_that_is_not_reported_is_a_lack_of_that_run_alone_and_is_logged_once(
    logged: list[str],
):
    spans = [Span(RunId(run), 0.0, 1.0) for run in ("large", "too large", "small")]
    with serving() as server:
        prometheus = Prometheus(server.url, lambda: (), lambda: (), lambda: spans)
        for span in spans:
            prometheus.view(span.run)
        for _ in range(5):
            prometheus.poll()

    assert prometheus.errors == 10
    assert prometheus.answers.trouble(time.time()) == ""
    assert prometheus._pause == INTERVAL_SECONDS, "alerts are asked for as often"
    assert prometheus.answers.gap(RunId("small")) == ""
    assert RunId("small") in prometheus.answers.pasts
    reason = f"{server.url}/api/v1/query_range answers 422 {HTTPStatus(422).phrase}."
    for run in ("large", "too large"):
        assert (
            prometheus.answers.gap(RunId(run))
            == f"Past alerts, limits and GPU curves of this run are missing. {reason}"
        )
    assert logged == [f"{reason} Pages of runs show the last known history, or none."]


def test_pasts_that_take_long_hold_up_no_alert_for_longer_than_one_of_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exporter.runs.overview.prometheus.PAST_SECONDS", 0.1)
    spans = [Span(RunId(f"large {number}"), 0.0, 1.0) for number in range(4)]
    with serving(0.15) as server:
        prometheus = Prometheus(server.url, lambda: (), lambda: (), lambda: spans)
        for span in spans:
            prometheus.view(span.run)
        lacking = []
        for _ in spans:
            prometheus.poll()
            lacking.append(len(prometheus.answers.gaps))

    assert lacking == [1, 2, 3, 4], "each in turn"


def test_runs_that_are_looked_at_are_asked_about_each_time_and_the_others_in_turn():
    spans = [Span(RunId(f"run {number}"), 0.0, 1.0) for number in range(5)]
    prometheus = Prometheus("http://127.0.0.1:1", lambda: (), lambda: (), lambda: spans)
    prometheus.view(RunId("run 3"))
    by_name = {span.run: span for span in spans}
    asked: list[list[str]] = []
    for _ in range(5):
        asked.append(prometheus._due(by_name))
        prometheus._asked.update(dict.fromkeys(asked[-1], time.monotonic()))

    assert all(names[0] == RunId("run 3") for names in asked)
    assert sorted(names[1].run for names in asked[:4]) == ["run 0", "run 1", "run 2", "run 4"]
