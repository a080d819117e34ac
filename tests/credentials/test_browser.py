"""What a page of another site can do to Prometheus and Alertmanager, in a real browser that is signed in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from exporter.credentials import PEOPLE
from stepwatch.system import http_client
from tests.credentials.conftest import Site
from tests.real import query
from tests.real.listening import Listening
from tests.real.remote_write import snappy, write_request
from tests.real.waiting import eventually
from tests.runs.light.browser import Browser, started

FOREIGN = "attacker.example"
SILENCE = {
    "matchers": [{"name": "run", "value": ".+", "isRegex": True}],
    "startsAt": "2026-01-01T00:00:00Z",
    "endsAt": "2099-01-01T00:00:00Z",
    "createdBy": "test",
    "comment": "test",
}
ALERTS = [{"labels": {"alertname": "Forged"}}]
KINDS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
"""Of bodies that a browser sends without asking the server first."""


class Page(BaseHTTPRequestHandler):
    """The page of another site, with nothing on it yet."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><body></body>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(name="port", scope="module")
def _port() -> Iterator[int]:
    """Where the page of another origin is."""
    with Listening(Page) as server:
        yield int(server.url.rpartition(":")[2])


@pytest.fixture(name="elsewhere", params=[FOREIGN, "127.0.0.1"], ids=["site", "port"])
def _elsewhere(request: pytest.FixtureRequest, port: int) -> str:
    """A page of another site, and one of another port of this machine: the same site, of another origin."""
    return f"http://{request.param}:{port}"


@pytest.fixture(name="browser", scope="module")
def _browser(site: Site) -> Iterator[Browser]:
    """Signed in as people are."""
    password = (site.access / "password").read_text()
    with started(FOREIGN) as browser:
        for server in (site.prometheus, site.alertmanager):
            browser.open(f"http://{PEOPLE}:{password}@127.0.0.1:{server.port}/-/ready")
            assert "401" not in browser.driver.page_source
        yield browser


def fetched(browser: Browser, url: str, **options: object) -> str:
    """What the script of the page that is open reads of a request, ``""`` if nothing."""
    found: str = browser.driver.execute_async_script(
        "const [url, options, done] = arguments;"
        "if (options.bytes) options.body = new Blob([new Uint8Array(options.bytes)]);"
        "fetch(url, options).then(answer => answer.text()).then(done, () => done(''))",
        url,
        options,
    )
    return found


def submit(browser: Browser, page: str, url: str, kind: str, body: str, *, framed: bool) -> None:
    """Have the page send a form by itself, in a frame or in its own place."""
    browser.open(page)
    browser.tell(
        f"""(() => {{
        const form = document.createElement('form'), field = document.createElement('input');
        const [name, ...rest] = {json.dumps(body)}.split('=');
        Object.assign(form, {{method: 'post', action: {json.dumps(url)}, enctype: {json.dumps(kind)}}});
        Object.assign(field, {{name, value: rest.join('=')}});
        if ({json.dumps(framed)}) {{
            const frame = document.createElement('iframe');
            frame.name = form.target = 'inside'; document.body.append(frame);
        }}
        form.append(field); document.body.append(form); form.submit();
        }})()"""
    )
    time.sleep(0.3)


def untouched(site: Site) -> None:
    silences = json.loads(http_client.read(f"{site.alertmanager.url}/api/v2/silences") or "null")
    assert [each for each in silences if each["status"]["state"] != "expired"] == []
    assert json.loads(http_client.read(f"{site.alertmanager.url}/api/v2/alerts") or "null") == []


def test_its_own_page_reads_and_silences(site: Site, browser: Browser) -> None:
    url = f"{site.alertmanager.url}/api/v2/silence"
    browser.open(f"{site.alertmanager.url}/-/ready")
    headers, body = {"Content-Type": "application/json"}, json.dumps(SILENCE)
    made = json.loads(fetched(browser, f"{url}s", method="POST", headers=headers, body=body))["silenceID"]
    assert made in fetched(browser, f"{url}s")
    fetched(browser, f"{url}/{made}", method="DELETE")
    state = json.loads(fetched(browser, f"{url}/{made}"))["status"]["state"]
    browser.open(f"{site.prometheus.url}/-/ready")
    assert '"success"' in fetched(browser, f"{site.prometheus.url}/api/v1/query?query=1")
    assert state == "expired"


def test_a_page_of_another_origin_reads_nothing(site: Site, browser: Browser, elsewhere: str) -> None:
    browser.open(elsewhere)
    for url in (
        f"{site.alertmanager.url}/api/v2/status",
        f"{site.alertmanager.url}/metrics",
        f"{site.prometheus.url}/api/v1/query?query=1",
        f"{site.prometheus.url}/metrics",
    ):
        for credentials in ("omit", "same-origin", "include"):
            for mode in ("cors", "no-cors"):
                assert fetched(browser, url, credentials=credentials, mode=mode) == "", (credentials, mode)


def test_scripts_of_another_origin_neither_silence_nor_alert(
    site: Site, browser: Browser, elsewhere: str
) -> None:
    browser.open(elsewhere)
    for path, body in (("silences", SILENCE), ("alerts", ALERTS)):
        url, text = f"{site.alertmanager.url}/api/v2/{path}", json.dumps(body)
        for kind in ("application/json", *KINDS, ""):
            for mode in ("cors", "no-cors"):
                headers = {"Content-Type": kind} if kind else {}
                options = {"headers": headers} if kind else {"bytes": list(text.encode())}
                for credentials in ("omit", "include"):
                    sent = {"method": "POST", "credentials": credentials, "mode": mode, "body": text}
                    assert fetched(browser, url, **sent, **options) == "", (kind, mode, credentials)
    fetched(browser, f"{site.alertmanager.url}/api/v2/silence/x", method="DELETE", credentials="include")
    untouched(site)


@pytest.mark.parametrize("framed", [False, True], ids=["page", "frame"])
def test_a_form_of_another_origin_neither_silences_nor_alerts(
    site: Site, browser: Browser, elsewhere: str, *, framed: bool
) -> None:
    for path, body in (("silences", SILENCE), ("alerts", ALERTS)):
        for kind in KINDS:
            # Written so, a form of text/plain is JSON: {"...", "x":"=..."}.
            text = json.dumps(body)[:-1] + (', "x": "="}' if isinstance(body, dict) else ', "="]')
            submit(browser, elsewhere, f"{site.alertmanager.url}/api/v2/{path}", kind, text, framed=framed)
    untouched(site)


def test_a_form_that_reloads_changes_nothing(site: Site, browser: Browser, elsewhere: str) -> None:
    def metric(name: str) -> float | None:
        return http_client.metric(http_client.read(f"{site.alertmanager.url}/metrics") or "", name)

    reloaded = "alertmanager_config_last_reload_success_timestamp_seconds"
    before, settings = metric(reloaded) or 0, metric("alertmanager_config_hash")
    time.sleep(1)  # Alertmanager counts whole seconds

    submit(browser, elsewhere, f"{site.alertmanager.url}/-/reload", KINDS[0], "a=b", framed=False)
    eventually(lambda: (metric(reloaded) or 0) > before)
    for path in ("/-/reload", "/-/quit"):
        submit(browser, elsewhere, f"{site.prometheus.url}{path}", KINDS[0], "a=b", framed=False)

    assert metric("alertmanager_config_hash") == settings
    assert metric("alertmanager_config_last_reload_successful") == 1
    assert http_client.read(f"{site.prometheus.url}/-/ready") is not None
    untouched(site)


def test_neither_frame_nor_picture_nor_script_shows_anything(
    site: Site, browser: Browser, elsewhere: str
) -> None:
    for url in (f"{site.alertmanager.url}/api/v2/status", f"{site.prometheus.url}/api/v1/query?query=1"):
        browser.open(elsewhere)
        browser.complaints()
        for tag in ("img", "script"):
            loaded = browser.driver.execute_async_script(
                "const [tag, url, done] = arguments, added = document.createElement(tag);"
                "added.onload = () => done('loaded'); added.onerror = () => done('refused');"
                "added.src = url; document.body.append(added);",
                tag,
                url,
            )
            assert loaded == "refused" or tag == "script"
        frame = browser.driver.execute_script(
            "const frame = document.createElement('iframe'); frame.src = arguments[0];"
            "document.body.append(frame); return frame",
            url,
        )
        eventually(lambda: any("frame-ancestors" in each for each in browser.complaints()))
        browser.driver.switch_to.frame(frame)
        assert '"status":"success"' not in browser.driver.page_source
        assert '"cluster":' not in browser.driver.page_source
        browser.driver.switch_to.default_content()


def test_a_name_of_another_site_that_leads_here_is_not_signed_in(site: Site, browser: Browser) -> None:
    for server in (site.alertmanager, site.prometheus):
        browser.open(f"http://{FOREIGN}:{server.port}/-/ready")
        assert "OK" not in browser.tell("document.body.innerText")
        assert "Ready" not in browser.tell("document.body.innerText")


def test_a_page_of_another_site_writes_no_samples(site: Site, browser: Browser, port: int) -> None:
    """One of another port of this machine does; docs/reliability.md says so."""
    browser.open(f"http://{FOREIGN}:{port}")
    forged = write_request([({"__name__": "forged", "node": "node"}, [(time.time(), 1.0)])])
    url, body = f"{site.prometheus.url}/api/v1/write", list(snappy(forged))
    for mode in ("cors", "no-cors"):
        fetched(browser, url, method="POST", credentials="include", mode=mode, bytes=body)
    assert query(site.prometheus.url, "forged") == []
