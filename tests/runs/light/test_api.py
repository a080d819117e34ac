"""Runs as JSON: stable names, and errors in words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from exporter.http.message import Answer, Request
from exporter.http.routes import Routes
from exporter.runs.light.site import Light
from exporter.runs.overview.models import Omitted
from tests.runs.light.stories import EXPLOSION, HEALTHS, Reported, sick, summary


def ask(reported: Reported, target: str) -> tuple[str, Any]:
    path, _, query = target.partition("?")
    answer = Routes(Light(reported, []).routes())(Request("GET", path, query))
    assert isinstance(answer, Answer)
    assert answer.kind == "application/json"
    return answer.code, json.loads(answer.body)


def test_runs_are_reported_with_all_that_the_page_shows() -> None:
    code, reported = ask(Reported([summary(), sick()], prometheus="away"), "/api/v1/runs")
    assert (code, reported["prometheus"]) == ("200", "away")
    bad, good = reported["runs"]
    assert (bad["run"], bad["state"], bad["severity"], bad["framework"]) == (
        *("ppo/sick", "running", "critical", "verl"),
    )
    assert (bad["step"], bad["total_steps"], bad["age_seconds"]) == (204, 435, 12.0)
    assert bad["page"] == "/run/ppo%2Fsick"
    (alert,) = bad["alerts"]
    assert (alert["alert"], alert["summary"], alert["value"]) == ("KLExplosion", EXPLOSION.summary, 1.62)
    assert (alert["description"], alert["action"]) == (EXPLOSION.description, EXPLOSION.action)
    kl = next(signal for signal in bad["signals"] if signal["signal"] == "kl")
    assert (kl["value"], kl["judged"], kl["state"], kl["since_step"]) == (1.62, 1.5, "critical", 1198)
    assert kl["critical"] == {"low": None, "high": 1.02}
    assert (good["severity"], good["alerts"]) == ("", [])


def test_a_series_is_points_of_step_and_value_with_each_limit() -> None:
    code, reported = ask(Reported([sick()]), "/api/v1/runs/ppo%2Fsick/series?signal=kl")
    assert code == "200"
    assert reported == {
        "run": "ppo/sick",
        "cluster": "",
        "signal": "kl",
        "unit": "short",
        "points": [[1, 0.02], [2, 0.03], [3, None]],
        "limits": [
            {
                "name": "KLHigh",
                "alert": "KLHigh",
                "severity": "warning",
                "side": "high",
                "alone": True,
                "points": [[2, 0.52]],
            }
        ],
    }


@pytest.mark.parametrize("target", ["/api/v1/runs", "/api/v1/runs/ppo/series?signal=kl"])
def test_while_logs_are_read_nothing_is_said_not_to_be_there(target: str) -> None:
    code, reported = ask(Reported(omitted=Omitted(reading=True)), target)
    assert (code, reported["nearest"]) == ("503", [])
    assert "still being read" in reported["error"]


def test_runs_that_are_not_shown_are_counted() -> None:
    assert ask(Reported(omitted=Omitted(dormant=3)), "/api/v1/runs")[1]["dormant"] == 3


def test_a_slash_may_be_sent_as_it_is() -> None:
    assert ask(Reported([sick()]), "/api/v1/runs/ppo/sick/series?signal=kl")[0] == "200"


@pytest.mark.parametrize(
    ("target", "code", "words", "nearest"),
    [
        ("/api/v1/runs/ppo%2Fsic/series?signal=kl", "404", "There is no run named ppo/sic.", "ppo/sick"),
        ("/api/v1/runs/ppo%2Fsick/series?signal=rewards", "404", "has no curve of rewards", "reward"),
        ("/api/v1/runs/ppo%2Fsick/series", "400", "?signal=", "entropy"),
        ("/api/v1/runs/ppo%2Fsick/series?signal=", "400", "?signal=", "entropy"),
    ],
)
def test_errors_are_json_with_words_and_the_nearest_names(
    target: str, code: str, words: str, nearest: str
) -> None:
    found, reported = ask(Reported([sick()]), target)
    assert found == code
    assert words in reported["error"]
    assert reported["nearest"][0] == nearest


def test_names_and_numbers_that_json_lacks_are_reported_all_the_same() -> None:
    name = '<script>"\\\n\u202e🦜</script>'
    health = replace(HEALTHS[0], value=float("nan"), judged=float("inf"))
    _, reported = ask(Reported([summary(name, healths=(health,))]), "/api/v1/runs")
    assert reported["runs"][0]["run"] == name
    assert reported["runs"][0]["signals"][0]["value"] is None
