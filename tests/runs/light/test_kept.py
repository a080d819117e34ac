"""Pages are made again only when what they tell of has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pytest

from exporter.drawing.chart import Chart
from exporter.drawing.curve import Curve
from exporter.http.message import Answer, Request
from exporter.http.routes import Routes
from exporter.runs.light import site
from exporter.runs.light.site import Light
from exporter.runs.overview.models import Candidate, RunStory, RunSummary
from tests.runs.light.stories import EXPLOSION, HEALTHS, Reported, chart, sick, story

Change = Callable[[RunStory], RunStory]


@dataclass
class Whole(Reported):
    """One run as it is at first and then as a change leaves it."""

    change: Change = lambda reported: reported

    def run(self, name: str = "") -> RunStory:  # noqa: ARG002  whatever is asked
        return self.change(story(sick(), (chart(),)))

    def runs(self) -> list[RunSummary]:
        return [self.run().summary]


def asking(reported: Whole) -> Callable[[str], Answer]:
    routes = Routes(Light(reported, []).routes())

    def ask(path: str) -> Answer:
        answer = routes(Request("GET", path))
        assert isinstance(answer, Answer)
        return answer

    return ask


def of_summary(**new: object) -> Change:
    return lambda reported: replace(reported, summary=replace(reported.summary, **new))  # type: ignore[arg-type]


def of_chart(**new: object) -> Change:
    return lambda reported: replace(reported, charts=(replace(reported.charts[0], **new),))  # type: ignore[arg-type]


RUN = "/run/ppo%2Fsick"
SUMMARY: dict[str, Change] = {
    "name": of_summary(name="ppo/other"),
    "state": of_summary(state="failed"),
    "framework": of_summary(framework="trl"),
    "step": of_summary(step=205),
    "total": of_summary(total=436),
    "age_seconds": of_summary(age_seconds=13.0),
    "restarts": of_summary(restarts=1),
    "healths": of_summary(healths=HEALTHS),
    "firing": of_summary(firing=()),
}
CHART: dict[str, Change] = {
    "title": of_chart(title="KL to the reference"),
    "description": of_chart(description="Another."),
    "unit": of_chart(unit="percentunit"),
    "low": of_chart(low=-1.0),
    "high": of_chart(high=7.0),
    "first": of_chart(first=0),
    "last": of_chart(last=500),
    "curves": of_chart(curves=(Curve("KL", (((1, 0.02), (435, 0.03)),)),)),
    "limits": of_chart(limits=()),
    "bands": of_chart(bands=()),
}
WHOLE: dict[str, Change] = {
    "charts": lambda reported: replace(reported, charts=(*reported.charts, chart("GPU utilisation"))),
    "episodes": lambda reported: replace(reported, episodes=reported.episodes[:1]),
    "rows": lambda reported: replace(reported, rows=reported.rows[1:]),
    "lack": lambda reported: replace(reported, lack="Past alerts are missing."),
    "candidates": lambda reported: replace(reported, candidates=(Candidate("kl", ("my/kl",)),)),
}


@pytest.mark.parametrize(
    ("path", "change"),
    [
        *(pytest.param("/", change, id=f"all runs: {part}") for part, change in SUMMARY.items()),
        *(
            pytest.param(RUN, change, id=f"a run: {part}")
            for part, change in (SUMMARY | CHART | WHOLE).items()
        ),
    ],
)
def test_an_answer_is_given_again_until_a_part_of_what_it_reports_changes(path: str, change: Change) -> None:
    reported = Whole()
    ask = asking(reported)
    first = ask(path)
    assert ask(path) is first
    reported.change = change
    assert ask(path).body != first.body


def test_each_part_of_what_is_reported_is_among_those_that_change() -> None:
    assert {field.name for field in fields(RunSummary)} == {
        *SUMMARY,
        "resumes",
    }  # which is for programs only
    assert {field.name for field in fields(Chart)} == set(CHART)
    assert {field.name for field in fields(RunStory)} == {"summary", *WHOLE}


@pytest.mark.parametrize("path", ["/", RUN])
def test_what_keeps_prometheus_from_telling_and_an_age_in_other_words_are_changes(path: str) -> None:
    reported = Whole()
    ask = asking(reported)
    first = ask(path)
    reported.change = of_summary(age_seconds=12.9)  # still reported as 12 s
    assert ask(path) is first
    reported.prometheus = "Prometheus gives no answer."
    assert b"Prometheus gives no answer." in ask(path).body


@pytest.mark.parametrize("path", ["/", RUN])
def test_what_keeps_the_stack_from_alerting_is_shown_on_every_page(path: str) -> None:
    reported = Whole()
    ask = asking(reported)
    assert b"Alerting is broken" not in ask(path).body
    reported.faults = ("State disk is full. /data: <0 B> free.",)
    assert b"Alerting is broken" in ask(path).body
    assert b"<li>State disk is full. /data: &lt;0 B&gt; free.</li>" in ask(path).body
    reported.faults = ()
    assert b"Alerting is broken" not in ask(path).body


def test_an_alert_about_no_run_is_a_change() -> None:
    reported = Whole()
    ask = asking(reported)
    first = ask("/")
    reported.about_none = (EXPLOSION,)
    assert ask("/").body != first.body


def test_a_value_whose_hash_is_that_of_another_is_a_change() -> None:
    assert site.digest(-1.0) != site.digest(-2.0)


@pytest.mark.parametrize("runs", [1, site.MOST, site.MOST + 5])
def test_few_are_kept_the_latest_of_all(runs: int) -> None:
    made: list[int] = []
    pages = site.Kept()

    def ask(run: int) -> None:
        pages.answer(run, "same", lambda: made.append(run) or Answer("200 OK", "", b""))  # type: ignore[func-returns-value]

    for run in range(runs):
        ask(run)
        ask(run)
    assert made == list(range(runs))
    ask(runs - 1)
    ask(0)
    assert made == list(range(runs)) + [0] * (runs > site.MOST)
