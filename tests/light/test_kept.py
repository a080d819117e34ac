"""Pages are made again only when what they tell of has changed."""

from __future__ import annotations

import pytest

from exporter.message import Answer, Request
from exporter.routes import Routes
from exporter.runs.light import kept
from exporter.runs.light.site import Light
from tests.light.stories import Told, chart, sick, summary


def test_an_answer_is_given_again_until_something_changed() -> None:
    told = Told([sick(), summary()], (chart(),))
    routes = Routes(Light(told, []).routes())

    def ask(path: str) -> Answer:
        answer = routes(Request("GET", path))
        assert isinstance(answer, Answer)
        return answer

    for path in ("/", "/run/ppo%2Fsick"):
        told.summaries[0] = sick(age_seconds=12.0)
        first = ask(path)
        told.summaries[0] = sick(age_seconds=12.9)  # still told as 12 s
        assert ask(path) is first
        told.summaries[0] = sick(age_seconds=13.0)
        assert b"13 s ago" in ask(path).body


@pytest.mark.parametrize("runs", [1, kept.MOST, kept.MOST + 5])
def test_few_are_kept_the_latest_of_all(runs: int) -> None:
    made: list[int] = []
    pages = kept.Kept()

    def ask(run: int) -> None:
        pages.answer(run, "same", lambda: made.append(run) or Answer("200 OK", "", b""))  # type: ignore[func-returns-value]

    for run in range(runs):
        ask(run)
        ask(run)
    assert made == list(range(runs))
    ask(runs - 1)
    ask(0)
    assert made == list(range(runs)) + [0] * (runs > kept.MOST)
