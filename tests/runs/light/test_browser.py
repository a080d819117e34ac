"""The pages in a real browser: nothing is fetched from elsewhere, nothing runs, everybody can read them."""

from __future__ import annotations

import time

import pytest

from exporter.runs.light import formatting
from tests.real.waiting import eventually
from tests.runs.light.browser import PHONE, Browser
from tests.runs.light.conftest import Serve
from tests.runs.light.stories import Reported, chart, sick, summary

EVIL = "<script>document.title='run'</script>"
LONG = "ppo/" + "a-very-long-name_" * 18


@pytest.fixture
def reported() -> Reported:
    """One sick, one healthy, one with a name that wants to be run, one whose name is long, one finished."""
    runs = [sick(), summary(), summary(EVIL), summary(LONG, total=None), summary("done", state="finished")]
    return Reported(runs, (chart("KL"), chart("Reward"), chart("Entropy", 3)))


def pages(reported: Reported) -> list[str]:
    return [
        "/",
        "/?refresh=off",
        "/run/gone",
        *(f"/{formatting.page(run.name)}" for run in reported.summaries),
    ]


def test_nothing_leaves_the_origin_no_cookie_is_set_and_the_console_stays_empty(
    browser: Browser, serve: Serve, reported: Reported
) -> None:
    url = serve(reported)
    for page in pages(reported):
        browser.open(url + page)
    assert {request.split("/run/")[0].split("?")[0] for request in browser.requests()} <= {
        f"{url}/",
        f"{url}/icon.svg",
        url,
    }
    assert browser.driver.get_cookies() == []
    # the browser itself says that an answer was 404
    assert [words for words in browser.complaints() if "/run/gone" not in words] == []


def test_what_the_policy_forbids_is_refused_by_the_browser(
    browser: Browser, serve: Serve, reported: Reported
) -> None:
    browser.open(serve(reported))
    browser.tell(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"http://127.0.0.1:1/a.png\">');"
        "const made = document.createElement('script'); made.textContent = 'window.ran = 1';"
        "document.body.append(made)"
    )
    refused: list[str] = []

    def both() -> bool:
        refused.extend(browser.complaints())
        return all(
            any(rule in words for words in refused) for rule in ("img-src 'self'", "default-src 'none'")
        )

    eventually(both)
    assert browser.tell("window.ran") is None


def test_a_run_named_like_a_script_is_text(browser: Browser, serve: Serve, reported: Reported) -> None:
    url = serve(reported)
    browser.open(url)
    names = browser.tell("[...document.querySelectorAll('h2')].map(each => each.textContent)")
    assert set(names) == {run.name for run in reported.summaries}
    for page in pages(reported):
        browser.open(url + page)
        assert browser.tell("document.querySelectorAll('script').length") == 0
        assert browser.tell("document.title") != "run"


def test_every_run_is_found_by_its_link(browser: Browser, serve: Serve, reported: Reported) -> None:
    reported.summaries += [
        summary(name) for name in ("a b?c#d%2F&e", "quotes \"'", "zwei\nZeilen", "🦜/\u202eabc", "x/../y")
    ]
    url = serve(reported)
    browser.open(url)
    found = browser.tell("[...document.querySelectorAll('h2 a')].map(each => [each.textContent, each.href])")
    for name, link in found:
        browser.open(link)
        assert browser.tell("document.querySelector('h1').textContent") == name


def test_a_phone_has_no_horizontal_scrolling(browser: Browser, serve: Serve, reported: Reported) -> None:
    url = serve(reported)
    browser.size(*PHONE)
    for page in pages(reported):
        browser.open(url + page)
        assert browser.tell("document.documentElement.scrollWidth") == PHONE[0], page


def test_words_are_as_large_as_a_phone_can_show_them(
    browser: Browser, serve: Serve, reported: Reported
) -> None:
    browser.size(*PHONE)
    browser.open(serve(reported) + "/run/ppo%2Fsick")
    sizes = browser.tell(
        "[...document.querySelectorAll('body *:not(svg, svg *)')].filter(each => each.textContent.trim())"
        ".map(each => parseFloat(getComputedStyle(each).fontSize))"
    )
    assert min(sizes) >= 12
    axis = browser.tell("document.querySelector('figure svg text').getBoundingClientRect().height")
    assert axis >= 10


def test_works_without_scripts_and_refreshes_itself_where_it_was_read(
    browser: Browser, serve: Serve, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.runs.light.pages.SECONDS", 2)
    browser.size(400, 300)
    browser.without_scripts()
    browser.open(serve(reported) + "/run/ppo%2Fsick")
    browser.tell("window.scrollTo(0, 500)")
    reported.summaries[0] = sick(step=205)
    eventually(lambda: "step 205" in browser.tell("document.body?.textContent ?? ''"))
    assert browser.tell("window.scrollY") == pytest.approx(500, abs=2)


def test_a_paused_page_stays_as_it_is(
    browser: Browser, serve: Serve, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.runs.light.pages.SECONDS", 1)
    url = serve(reported)
    browser.open(url)
    browser.open(browser.tell("document.querySelector('.refresh a').href"))
    assert "not refreshed" in browser.tell("document.querySelector('.refresh').textContent")
    browser.requests()
    time.sleep(2.5)
    assert browser.requests() == []
    # the way on is paused too
    assert browser.tell("document.querySelector('h2 a').href").endswith("?refresh=off")
