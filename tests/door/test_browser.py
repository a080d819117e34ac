"""What a web page can do to Alertmanager and Prometheus from its reader's browser, in a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.door.conftest import Site, ask
from tests.door.test_door import SILENCE
from tests.real import AlertmanagerServer
from tests.real.listening import Listening
from tests.runs.light.browser import Browser, started

REBINDING = "attacker.example"


class Page(BaseHTTPRequestHandler):
    """The page of another site, with nothing on it yet."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(name="elsewhere", scope="module")
def _elsewhere() -> Iterator[str]:
    with Listening(Page) as site:
        yield site.url


@pytest.fixture(name="browser", scope="module")
def _browser() -> Iterator[Browser]:
    with started(REBINDING) as browser:
        yield browser


def tried(browser: Browser, page: str, url: str, **options: str) -> str:
    """What the script of a page reads of a request, ``""`` if nothing."""
    browser.open(page)
    reported: str = browser.driver.execute_async_script(
        "const [url, options, done] = arguments;"
        "fetch(url, options).then(answer => answer.text()).then(done, () => done(''))",
        url,
        options,
    )
    return reported


def attacked(browser: Browser, page: str, alertmanager: str) -> None:
    """Have a page silence every alert, by each way that browsers know."""
    url, body = f"http://{alertmanager}/api/v2/silences", json.dumps(SILENCE)
    for options in (
        {"headers": {"Content-Type": "application/json"}},
        {"mode": "no-cors"},
        {"mode": "no-cors", "referrerPolicy": "no-referrer"},
    ):
        tried(browser, page, url, method="POST", body=body, **options)


def test_any_page_silences_an_alertmanager_that_stands_alone(
    browser: Browser, elsewhere: str, tmp_path: Path
) -> None:
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    with AlertmanagerServer("0.31", tmp_path) as bare:
        address = f"127.0.0.1:{bare.port}"
        attacked(browser, elsewhere, address)
        assert json.loads(ask(address, "/api/v2/silences").body)
        assert "matchers" in tried(browser, elsewhere, f"http://{address}/api/v2/silences")


def test_through_the_door_a_page_of_another_origin_neither_silences_nor_reads(
    site: Site, browser: Browser, elsewhere: str
) -> None:
    attacked(browser, elsewhere, site.door.alertmanager)
    attacked(browser, elsewhere, f"127.0.0.1:{site.alertmanager.port}")

    assert json.loads(ask(site.door.alertmanager, "/api/v2/silences").body) == []
    for address in (site.door.alertmanager, f"127.0.0.1:{site.alertmanager.port}"):
        assert tried(browser, elsewhere, f"http://{address}/api/v2/status") == ""
    for address in (site.door.prometheus, f"127.0.0.1:{site.prometheus.port}"):
        assert tried(browser, elsewhere, f"http://{address}/api/v1/query?query=1") == ""


def test_a_name_that_resolves_to_this_machine_reads_nothing_of_its_own_origin(
    site: Site, browser: Browser
) -> None:
    port = site.door.alertmanager.split(":")[1]
    page = f"http://{REBINDING}:{port}/"
    attacked(browser, page, f"{REBINDING}:{port}")

    assert "is not a name of this machine" in tried(browser, page, f"{page}api/v2/status")
    assert json.loads(ask(site.door.alertmanager, "/api/v2/silences").body) == []


def test_the_doors_own_pages_silence_and_read(site: Site, browser: Browser) -> None:
    page = f"http://{site.door.alertmanager}/"
    headers = {"Content-Type": "application/json"}
    body = json.dumps(SILENCE)
    made = tried(browser, page, f"{page}api/v2/silences", method="POST", body=body, headers=headers)

    silence = json.loads(made)["silenceID"]
    assert silence in tried(browser, page, f"{page}api/v2/silences")
    tried(browser, page, f"{page}api/v2/silence/{silence}", method="DELETE")


def test_a_link_from_another_page_leads_in_and_a_frame_does_not(
    site: Site, browser: Browser, elsewhere: str
) -> None:
    url = f"http://{site.door.prometheus}/-/ready"
    browser.open(elsewhere)
    browser.tell(
        f"document.body.innerHTML = '<a href=\"{url}\">see</a>'; document.querySelector('a').click()"
    )
    browser.driver.implicitly_wait(10)
    assert "Ready" in browser.driver.find_element("tag name", "pre").text

    browser.open(elsewhere)
    browser.driver.execute_async_script(
        "const frame = document.createElement('iframe'); frame.src = arguments[0];"
        "frame.onload = () => arguments[1](); document.body.append(frame)",
        url,
    )
    browser.driver.switch_to.frame(0)
    assert "Ready" not in browser.driver.find_element("tag name", "body").text
    browser.driver.switch_to.default_content()
