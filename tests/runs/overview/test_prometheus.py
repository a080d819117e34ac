"""What Prometheus says: real ones that watch a run and GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from exporter.runs.overview.models import RunId
from exporter.runs.overview.prometheus import Client, Prometheus, Span
from tests.real import PrometheusServer, eventually, free_port
from tests.rules import rendered
from tests.runs.overview.conftest import asked as curve
from tests.runs.overview.conftest import limit, panels
from tests.runs.speaking import Speaking, says

RUN = 'ppo/强化 "7" it\'s & a\\b'
ABOUT = RunId(RUN)
SHOWN = 'ppo/强化 \\"7\\" it\'s & a\\\\b'


def page(step: int) -> str:
    """A run that steps on, whose KL is too high from step 40 to 89 and restarts at 60, beside two GPUs."""
    return (
        f'rl_step{{run="{SHOWN}"}} {step}\n'
        f'rl_kl{{run="{SHOWN}"}} {5 * (40 <= step < 90)}\n'
        f'rl_start{{run="{SHOWN}",signal="kl"}} {0.05 if step < 60 else 0.25}\n'
        f'rl_noise{{run="{SHOWN}",signal="kl"}} 0.01\n'
        'gpu_utilization_ratio{gpu="0"} 0.5\ngpu_utilization_ratio{gpu="1"} 0.7\n'
        'gpu_memory_used_bytes{gpu="0"} 1e9\n'
    )


def stepping() -> Speaking:
    """Serves that run: five steps a second, from when someone first looks at it."""
    begun: list[float] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begun.append(time.monotonic())
        body = page(round(5 * (begun[-1] - begun[0]))).encode()
        says(body, Content_Type="text/plain; version=0.0.4")(handler)

    return Speaking(answer)


OTHER = {
    "alert": "EngineGone",
    "expr": "vector(1)",
    "labels": {"severity": "warning", "topic": "rollout"},
    "annotations": {"summary": "A server is gone."},
}
"""About no run."""


LIMITS = [
    each
    for each in rendered.recorded("rl")
    if each["record"] == "rl_limit" and each["labels"]["alert"] in ("KLHigh", "KLExplosion")
]
"""The limits of KL, as they are recorded."""


@contextmanager
def watching(version: str, folder: Path, port: int | None = None) -> Iterator[PrometheusServer]:
    """A Prometheus with one rule that watches such a run."""
    note = {"summary": "KL is high", "description": "KL {{ $value }}.", "action": "compare"}
    rule = {
        "alert": "KLHigh",
        "expr": "max by (run) (rl_kl) > 1",
        "labels": {"severity": "critical", "topic": "kl"},
        "annotations": {**note, "runbook_url": "docs/x#kl"},
    }
    with stepping() as run:
        target = run.url.removeprefix("http://")
        settings = {
            # Also how long a scrape may take: one that fails, as on a busy machine, ends the alert.
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "runs", "static_configs": [{"targets": [target]}]}],
            "rule_files": ["rules.yml"],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (folder / "rules.yml").write_text(
            yaml.safe_dump({"groups": [{"name": "rl", "rules": [*LIMITS, rule, OTHER]}]})
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
def test_a_real_prometheus_reports_alerts_their_steps_and_gpus(
    real: PrometheusServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("exporter.runs.overview.prometheus.FINEST", 1.0)
    questions, begun = Client(real.url), time.time() - 5
    asked = (*panels().queries, *panels().limits)
    eventually(lambda: ABOUT in questions.firing())
    (alert,) = questions.firing()[ABOUT]
    (other,) = questions.firing()[RunId("")]
    assert (other.name, other.severity, other.summary) == ("EngineGone", "warning", "A server is gone.")
    eventually(lambda: ABOUT not in questions.firing())
    time.sleep(2)  # it is over for the next question, too
    past = questions.past(Span(ABOUT, begun, time.time()), asked)

    assert (alert.name, alert.severity, alert.topic, alert.value) == ("KLHigh", "critical", "kl", 5.0)
    said = alert.summary, alert.description, alert.action, alert.runbook
    assert said == ("KL is high", "KL 5.", "compare", "docs/x#kl")
    assert alert.since is not None
    assert abs(alert.since - time.time()) < 30
    now = {each: values for each, values in questions.now(asked).items() if values}
    assert now == {
        curve("mean of GPUs"): {RunId(""): pytest.approx(0.6)},
        curve("in use, fullest GPU"): {RunId(""): pytest.approx(1e9)},
        limit("KLHigh"): {ABOUT: pytest.approx(0.75)},
        limit("KLExplosion"): {ABOUT: pytest.approx(1.25)},
        limit("GPUIdleWhileRunning"): {ABOUT: 0.05},
    }
    (episode,) = past.episodes
    assert (episode.name, episode.severity, episode.firing) == ("KLHigh", "critical", False)
    # scraped, judged and asked about at most 1 s later each, five steps a second, on a busy machine
    assert 40 <= episode.first_step <= 60
    assert 80 <= episode.last_step <= 110
    gpus, high = past.curves[curve("mean of GPUs")], past.curves[limit("KLHigh")]
    steps = [step for step, _ in gpus]
    assert steps == sorted(set(steps)), "each step once"
    assert len(steps) > 5
    assert all(value == pytest.approx(0.6) for _, value in gpus)
    assert [step for step, _ in high] == steps
    assert all(value == pytest.approx(0.55) for step, value in high if step < 60)
    assert all(value == pytest.approx(0.75) for step, value in high if step >= 80), "recorded 1 s later too"


@pytest.mark.e2e
def test_a_run_that_prometheus_does_not_know_has_no_past(real: PrometheusServer):
    asked = (*panels().queries, *panels().limits)
    past = Client(real.url).past(Span(RunId('no "such'), time.time() - 60, time.time()), asked)

    assert past.episodes == ()
    assert not any(past.curves.values())


@pytest.mark.e2e
def test_while_it_is_away_the_last_good_answer_stays_with_its_age_and_no_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
):
    monkeypatch.setattr("exporter.runs.overview.prometheus.INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr("exporter.runs.overview.prometheus.LONGEST_PAUSE", 0.2)
    with watching("3.13", tmp_path, free_port()) as server:
        begun = time.time() - 60
        spans = lambda: [Span(ABOUT, begun, time.time())]  # noqa: E731
        judged = lambda: (*panels().queries, limit("KLHigh"))  # noqa: E731
        prometheus = Prometheus(server.url, judged, lambda: panels().limits, spans)
        prometheus.start()
        eventually(
            lambda: ABOUT in prometheus.answers.firing and prometheus.answers.now[curve("mean of GPUs")]
        )
        assert prometheus.answers.trouble(time.time()) == ""
        server.kill()
        eventually(lambda: prometheus.errors >= 3)
        said = prometheus.answers

        assert [alert.name for alert in said.firing[ABOUT]] == ["KLHigh"]
        assert said.now[limit("KLHigh")][ABOUT] in (pytest.approx(0.55), pytest.approx(0.75))
        assert said.trouble(time.time()).startswith(
            "Prometheus last answered less than a minute ago; alerts are as they were then. "
            f"{server.url}/api/v1/alerts gives no answer: Connection refused."
        )
        assert "Prometheus last answered 10 min ago" in said.trouble((said.answered or 0.0) + 605)
        assert len([text for text in logged if "Alerts" in text]) == 1
        server.start()
        eventually(lambda: prometheus.answers.problem is None)
        assert prometheus.answers.trouble(time.time()) == ""
        prometheus.stop()
