"""What Prometheus says: real ones that watch a run and GPUs, and servers that answer all sorts of things."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from exporter.runs.history.panels import Asked
from exporter.runs.history.prometheus import INTERVAL_SECONDS, Prometheus
from exporter.runs.history.questions import Questions, Span
from exporter.runs.polled.web import PollError
from tests.history.conftest import panels
from tests.real import PrometheusServer, eventually, free_port
from tests.real.listening import Listening

RUN = 'ppo/强化 "7" it\'s & a\\b'
SHOWN = 'ppo/强化 \\"7\\" it\'s & a\\\\b'


def page(step: int) -> str:
    """A run that steps on, whose KL is too high from step 40 to 89, beside two GPUs."""
    return (
        f'rl_step{{run="{SHOWN}"}} {step}\n'
        f'rl_kl{{run="{SHOWN}"}} {5 * (40 <= step < 90)}\n'
        'gpu_utilization_ratio{gpu="0"} 0.5\ngpu_utilization_ratio{gpu="1"} 0.7\n'
        'gpu_memory_used_bytes{gpu="0"} 1e9\n'
    )


class Stepping(Listening):
    """Serves that run: ten steps a second, from when somebody first looks at it."""

    def __init__(self) -> None:
        begun: list[float] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                begun.append(time.monotonic())
                body = page(round(10 * (begun[-1] - begun[0]))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
                """Say nothing."""

        super().__init__(Handler)


OTHER = {
    "alert": "EngineGone",
    "expr": "vector(1)",
    "labels": {"severity": "warning", "topic": "rollout"},
    "annotations": {"summary": "A server is gone."},
}
"""About no run."""


@contextmanager
def watching(version: str, folder: Path, port: int | None = None) -> Iterator[PrometheusServer]:
    """A Prometheus with one rule that watches such a run."""
    note = {"summary": "KL is high.", "description": "KL {{ $value }}.", "runbook_url": "docs/x#kl"}
    rule = {
        "alert": "KLHigh",
        "expr": "max by (run) (rl_kl) > 1",
        "labels": {"severity": "critical", "topic": "kl"},
        "annotations": note,
    }
    with Stepping() as run:
        target = run.url.removeprefix("http://")
        settings = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
            "scrape_configs": [{"job_name": "runs", "static_configs": [{"targets": [target]}]}],
            "rule_files": ["rules.yml"],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (folder / "rules.yml").write_text(
            yaml.safe_dump({"groups": [{"name": "rl", "rules": [rule, OTHER]}]})
        )
        with PrometheusServer(version, folder, port=port) as server:
            yield server


@pytest.fixture(scope="module", params=["2.42", "3.13"])
def real(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    with watching(request.param, tmp_path_factory.mktemp("prometheus")) as server:
        yield server


@pytest.mark.e2e
def test_a_real_prometheus_tells_of_alerts_their_steps_and_gpus(
    real: PrometheusServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("exporter.runs.history.questions.FINEST", 0.2)
    questions, asked, begun = Questions(real.url), panels().asked, time.time() - 5
    eventually(lambda: RUN in questions.firing())
    (alert,) = questions.firing()[RUN]
    (other,) = questions.firing()[""]
    assert (other.name, other.severity, other.summary) == ("EngineGone", "warning", "A server is gone.")
    eventually(lambda: RUN not in questions.firing())
    time.sleep(0.5)  # it is over for the next question, too
    past = questions.past(Span(RUN, begun, time.time()), asked)

    assert (alert.name, alert.severity, alert.topic, alert.value) == ("KLHigh", "critical", "kl", 5.0)
    assert (alert.summary, alert.description, alert.runbook) == ("KL is high.", "KL 5.", "docs/x#kl")
    assert alert.since is not None
    assert abs(alert.since - time.time()) < 30
    assert questions.now(asked) == {
        "mean of GPUs": pytest.approx(0.6),
        "in use, fullest GPU": pytest.approx(1e9),
    }
    (episode,) = past.episodes
    assert (episode.name, episode.severity, episode.firing) == ("KLHigh", "critical", False)
    # scraped, judged and asked about at most 0.2 s later each, ten steps a second, on a busy machine
    assert 40 <= episode.first_step <= 60
    assert 80 <= episode.last_step <= 110
    steps = [step for step, _ in past.curves["mean of GPUs"]]
    assert steps == sorted(steps)
    assert len(steps) > 5
    assert all(value == pytest.approx(0.6) for _, value in past.curves["mean of GPUs"])


@pytest.mark.e2e
def test_a_run_that_prometheus_does_not_know_has_no_past(real: PrometheusServer):
    past = Questions(real.url).past(Span('no "such', time.time() - 60, time.time()), panels().asked)

    assert past.episodes == ()
    assert not any(past.curves.values())


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


@contextmanager
def answering(status: int, body: bytes, delay: float = 0.0, **headers: str) -> Iterator[str]:
    """The address of a server that has one answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(delay)
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  the base class's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
            """Say nothing."""

    with Listening(Handler) as server:
        yield server.url


def is_refused(ask: Callable[[], object], url: str) -> bool:
    try:
        ask()
    except PollError as problem:
        return str(problem).startswith(f"{url} answers in another way than Prometheus does")
    return False


@pytest.mark.parametrize(("body", "refused"), ODD.items())
def test_an_answer_that_is_none_of_prometheus_is_an_error_in_words(body: str, refused: Sequence[str]):
    with answering(200, body.encode()) as url:
        questions = Questions(url)
        asked: Mapping[str, Callable[[], object]] = {
            "alerts": questions.firing,
            "now": lambda: questions.now([Asked("a", "up")]),
            "past": lambda: questions.past(Span("x", 0.0, 60.0), [Asked("a", "up")]),
        }
        assert [name for name, ask in asked.items() if is_refused(ask, url)] == list(refused)


def test_an_answer_that_is_too_large_or_leads_elsewhere_is_refused():
    with answering(200, b" " * (3 * 1024 * 1024)) as url, pytest.raises(PollError, match="larger than 2 MiB"):
        Questions(url).firing()
    with (
        answering(302, b"", Location="http://127.0.0.1:1/") as url,
        pytest.raises(PollError, match="which is another server"),
    ):
        Questions(url).firing()
    with answering(503, b"starting") as url, pytest.raises(PollError, match="answers 503"):
        Questions(url).firing()


@pytest.mark.e2e
def test_while_it_is_away_the_last_good_answer_stays_with_its_age_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("exporter.runs.history.prometheus.INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr("exporter.runs.history.prometheus.LONGEST_PAUSE", 0.2)
    told: list[str] = []
    with watching("3.13", tmp_path, free_port()) as server:
        begun = time.time() - 60
        spans = lambda: [Span(RUN, begun, time.time())]  # noqa: E731
        prometheus = Prometheus(server.url, lambda: panels().asked, spans, told.append)
        prometheus.start()
        eventually(lambda: RUN in prometheus.said.firing and "mean of GPUs" in prometheus.said.now)
        assert prometheus.said.trouble(time.time()) == ""
        server.kill()
        eventually(lambda: prometheus.errors >= 3)
        said = prometheus.said

        assert [alert.name for alert in said.firing[RUN]] == ["KLHigh"]
        assert said.trouble(time.time()).startswith(
            "Prometheus last answered less than a minute ago; alerts are as they were then. "
            f"{server.url}/api/v1/alerts gives no answer: Connection refused."
        )
        assert "Prometheus last answered 10 min ago" in said.trouble((said.answered or 0.0) + 605)
        assert len([text for text in told if "Alerts" in text]) == 1
        server.start()
        eventually(lambda: prometheus.said.problem is None)
        assert prometheus.said.trouble(time.time()) == ""
        prometheus.stop()


def test_a_server_that_never_answers_holds_up_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exporter.runs.history.questions.SECONDS", 0.2)
    with answering(200, b"{}", delay=5) as url:
        told: list[str] = []
        prometheus = Prometheus(url, lambda: (), lambda: [Span("x", 0.0, 1.0)], told.append)
        prometheus.start()
        begun = time.monotonic()
        assert prometheus.look_at("x").episodes == ()
        assert prometheus.said.firing == {}
        assert time.monotonic() - begun < 0.1, "what is looked at is what is known"
        eventually(lambda: prometheus.errors > 0)
        assert "gives no answer" in prometheus.said.trouble(time.time())
        prometheus.stop()


class Serving(Listening):
    """A Prometheus without alerts that refuses to tell of the past of runs named ``large``."""

    def __init__(self, delay: float = 0.0) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if is_refused := "query_range" in self.path and b"large" in asked:
                    time.sleep(delay)
                body = b'{"data": {"alerts": [], "result": []}}'
                self.send_response(422 if is_refused else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815  the base class's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
                """Say nothing."""

        super().__init__(Handler)


def test_a_past_that_is_not_told_is_a_lack_of_that_run_alone_and_is_told_once():
    spans = [Span(run, 0.0, 1.0) for run in ("large", "too large", "small")]
    told: list[str] = []
    with Serving() as server:
        prometheus = Prometheus(server.url, lambda: (), lambda: spans, told.append)
        for span in spans:
            prometheus.look_at(span.run)
        for _ in range(5):
            prometheus._round(Questions(server.url))

    assert prometheus.errors == 10
    assert prometheus.said.trouble(time.time()) == ""
    assert prometheus._pause == INTERVAL_SECONDS, "alerts are asked for as often"
    assert prometheus.said.lack("small") == ""
    assert "small" in prometheus.said.pasts
    reason = f"{server.url}/api/v1/query_range answers 422 Unprocessable Entity."
    for run in ("large", "too large"):
        assert prometheus.said.lack(run) == f"Past alerts and GPU curves of this run are missing. {reason}"
    assert told == [f"{reason} Of the past of a run what was last known is shown, or nothing."]


def test_pasts_that_take_long_hold_up_no_alert_for_longer_than_one_of_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exporter.runs.history.prometheus.PAST_SECONDS", 0.1)
    spans = [Span(f"large {number}", 0.0, 1.0) for number in range(4)]
    with Serving(delay=0.15) as server:
        prometheus = Prometheus(server.url, lambda: (), lambda: spans, lambda _: None)
        for span in spans:
            prometheus.look_at(span.run)
        lacking = []
        for _ in spans:
            prometheus._round(Questions(server.url))
            lacking.append(len(prometheus.said.lacks))

    assert lacking == [1, 2, 3, 4], "each in turn"


def test_a_look_at_a_run_while_it_is_decided_what_is_due_is_no_fault_and_is_not_lost():
    spans = {name: Span(name, 0.0, 1.0) for name in ("run 0", "run 1", "run 2")}
    prometheus = Prometheus("http://127.0.0.1:1", lambda: (), lambda: ())

    class Moment(float):
        """That of a look; once its age is asked for, somebody looks at another run."""

        def __rsub__(self, now: float) -> float:
            prometheus.look_at("run 2")
            return now - float(self)

    prometheus._looked["run 0"] = Moment(time.monotonic())
    prometheus._due(spans)

    assert prometheus._due(spans) == ["run 0", "run 2", "run 1"]


def test_runs_that_are_looked_at_are_asked_about_each_time_and_the_others_in_turn():
    spans = [Span(f"run {number}", 0.0, 1.0) for number in range(5)]
    prometheus = Prometheus("http://127.0.0.1:1", lambda: (), lambda: spans)
    prometheus.look_at("run 3")
    by_name = {span.run: span for span in spans}
    asked: list[list[str]] = []
    for _ in range(5):
        asked.append(prometheus._due(by_name))
        prometheus._asked_at.update(dict.fromkeys(asked[-1], time.monotonic()))

    assert all(names[0] == "run 3" for names in asked)
    assert sorted(names[1] for names in asked[:4]) == ["run 0", "run 1", "run 2", "run 4"]
