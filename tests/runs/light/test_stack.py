"""The page of runs, as the real stack shows it in a real browser."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.runs.light import formatting
from stepwatch.__main__ import main as command
from tests import own_logs
from tests.e2e.stack import MAINLY_NEWEST, Stack
from tests.e2e.writer import writing
from tests.real.waiting import eventually
from tests.runs.light.browser import Browser

pytestmark = pytest.mark.e2e

SICK, HEALTHY = "grpo/short-answers", "<b>grpo</b>/healthy"


@pytest.fixture(scope="module", params=MAINLY_NEWEST)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that has seen one run go wrong and one go well."""
    with (
        Stack(tmp_path_factory.mktemp("stack"), request.param) as stack,
        writing(own_logs.SICK, stack.runs / f"{SICK}.log", "--rate=4", "--stay"),
        writing(own_logs.QUIET, stack.runs / f"{HEALTHY}.log", "--rate=8", "--stay"),
    ):
        stack.wait_step(SICK, 60)
        stack.wait_step(HEALTHY, 80)
        stack.wait_until(lambda: "LengthCollapse" in firing(stack))
        stack.wait_until(lambda: "critical" in firing(stack).values())
        yield stack


def address(stack: Stack) -> str:
    return f"http://{stack.config.address('exporter')}"


def asked(stack: Stack, path: str) -> Any:
    with urllib.request.urlopen(f"{address(stack)}/{path}", timeout=10) as answer:
        return json.load(answer)


def firing(stack: Stack) -> dict[str, str]:
    """The alerts that fire about the run on top: severity by name."""
    return {alert["alert"]: alert["severity"] for alert in asked(stack, "api/v1/runs")["runs"][0]["alerts"]}


def page_legend(stack: Stack, browser: Browser) -> str:
    """What the curves of the sick run's page are labelled with."""
    browser.open(f"{address(stack)}/{formatting.page(SICK)}")
    reported: str = browser.tell(
        "[...document.querySelectorAll('.legend')].map(each => each.innerText).join(' ')"
    )
    return reported


def words(browser: Browser) -> str:
    reported: str = browser.tell("document.body.innerText")
    return reported


def test_the_sick_run_stands_on_top_with_what_prometheus_says(stack: Stack, browser: Browser) -> None:
    browser.open(address(stack))
    names = browser.tell("[...document.querySelectorAll('h2 a')].map(each => each.textContent)")
    assert names == [SICK, HEALTHY]
    cards = browser.tell("[...document.querySelectorAll('.card')].map(each => each.innerText)")
    assert "LengthCollapse" in cards[0]
    assert "critical" in cards[0]
    assert "critical" not in cards[1]
    assert browser.complaints() == []


def test_what_moved_first_is_on_its_page_and_in_prometheus(stack: Stack, browser: Browser) -> None:
    query = f'rl_departure_step{{run="{SICK}"}}'
    stack.wait_until(lambda: "response_length" in {each["metric"]["signal"] for each in stack.query(query)})
    steps = {each["metric"]["signal"]: float(each["value"][1]) for each in stack.query(query)}
    # All goes wrong at once: within the five steps after step 33.
    assert {"response_length", "entropy", "kl"} <= steps.keys()
    assert all(33 <= step <= 38 for step in steps.values()), steps

    browser.open(f"{address(stack)}/{formatting.page(SICK)}")
    heading = "[...document.querySelectorAll('h2')].find(each => each.innerText == 'What moved first')"
    rows = browser.tell(
        f"[...{heading}.nextElementSibling.querySelectorAll('tbody tr')].map(x => x.innerText)"
    )
    (shown,) = (row.split() for row in rows if "response_length" in row)
    assert shown[:3] == [f"{steps['response_length']:.0f}", "response_length", "down"]
    assert stack.query('rl_departure_step{run="<b>grpo</b>/healthy"}') == []


def test_its_page_shades_the_steps_at_which_the_alert_fired(stack: Stack, browser: Browser) -> None:
    # an alert that has just begun is on the page of runs before its steps are asked for
    stack.wait_until(lambda: "LengthCollapse, " in page_legend(stack, browser))
    legend = page_legend(stack, browser)
    found = re.search(r"LengthCollapse, \w+: steps (\d+) to (\d+)", legend)
    assert found, legend
    first, last = map(int, found.groups())
    # responses halve within the five steps after step 33 (what the log's label says)
    assert 33 <= first <= last <= 60
    assert re.search(r"limit of LengthCollapse", legend)
    assert browser.tell("document.querySelectorAll('figure .band').length") > 0
    # what fired comes first
    assert browser.tell("document.querySelector('figure .band') !== null")


def test_a_curve_is_what_the_log_says(stack: Stack) -> None:
    series = asked(stack, formatting.series(SICK, "response_length"))
    reported = re.findall(
        rb"step:(\d+) .*?response_length/mean:(?:np\.float64\()?([\d.]+)",
        own_logs.SICK.read_bytes(),
    )
    assert series["points"] == [[int(step), pytest.approx(float(value))] for step, value in reported]


def test_alerts_of_a_silenced_run_say_until_when(stack: Stack, browser: Browser) -> None:
    assert command(["silence", "--config", str(stack.folder / "config.yaml"), "--for=1h", "--", SICK]) == 0
    end = time.time() + 3600

    def silenced() -> list[float | None]:
        return [alert["silenced_until"] for alert in asked(stack, "api/v1/runs")["runs"][0]["alerts"]]

    stack.wait_until(lambda: all(silenced()))
    assert silenced() == [pytest.approx(end, abs=60)] * len(silenced())
    browser.open(address(stack))
    assert f"silenced until {formatting.clock(silenced()[0])}" in words(browser)


def test_without_prometheus_the_runs_are_shown_and_it_is_said(stack: Stack, browser: Browser) -> None:
    stack.prometheus.kill()
    try:
        browser.open(address(stack))
        eventually(lambda: "Prometheus" in words(browser))
        assert {SICK, HEALTHY} <= set(words(browser).splitlines())
    finally:
        stack.prometheus.start()
