"""The whole way: a real Alertmanager, the notifier, robots; tests of receivers, silences from messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from stepwatch.operate.test_alert import send_test
from stepwatch.system import http_client
from tests.alertmanager.route import alert, post
from tests.notifier.around import Around
from tests.real import eventually
from tests.real.answering import Answering
from tests.real.robots import TOKEN, DingTalk, Feishu, Robot, WeCom
from tests.runs.light import browser

SECRET = "SECs3cret-of-the-robot"


class Service(Answering):
    """What an Apprise URL is about."""

    kind, secret = "apprise", ""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.url = f"json://user:{SECRET}@127.0.0.1:{self.port}"


ROBOTS: dict[str, Robot | Service] = {}


@pytest.fixture(name="around", scope="module")
def _around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Around]:
    ROBOTS.update(
        {
            "feishu": Feishu(secret=SECRET),
            "unsigned": DingTalk(secret=SECRET),
            "gone": WeCom(),
            "chat/聊天": WeCom(),
            "service": Service(200),
            "closed": Service(403),
        }
    )
    ROBOTS["gone"].fault = "revoked"
    folder = tmp_path_factory.mktemp("around")
    around = Around(folder, ROBOTS, {"unsigned": "wrong"})
    with ExitStack() as parts:
        for part in (*ROBOTS.values(), around.alertmanager, around.notifier):
            parts.enter_context(part)  # type: ignore[arg-type]
        yield around


def run_test(around: Around, name: str) -> tuple[int, str]:
    """Run `test-alert`."""
    said: list[str] = []
    return send_test(around.config_file, name, around, said.append, patience=60), "\n".join(said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("feishu", 0, "Its answer: code 0 success"),
        ("chat/聊天", 0, "Its answer: errcode 0 ok"),
        ("unsigned", 1, "errcode 310000 sign not match"),
        ("gone", 1, "errcode 93000 invalid webhook url"),
        ("service", 0, "Apprise reports success; it does not show what the service answered"),
        ("closed", 1, "error=403"),
    ],
)
def test_a_test_shows_what_the_robot_answers(around: Around, name: str, code: int, words: str) -> None:
    ended, said = run_test(around, name)

    assert (ended, words in said) == (code, True), said
    assert ("Fix: " in said) == bool(code)
    assert SECRET not in said
    assert TOKEN not in said


def test_the_link_of_a_message_silences_its_alert_once_it_is_confirmed(around: Around) -> None:
    post(around.alertmanager, alert("KLExplosion", "夜 <b>", topic="kl"))
    known: list[dict[str, object]] = []

    def delivered() -> bool:
        page = json.loads(http_client.read(f"{around.url}/api/v1/deliveries") or "{}")
        known[:] = [
            each for each in page["deliveries"] if "夜" in each["title"] and each["receiver"] == "feishu"
        ]
        return bool(known) and known[0]["state"] == "delivered"

    eventually(delivered)
    page = f"{around.url}/silence/{known[0]['id']}"
    with browser.started() as shown:
        shown.open(page)
        assert "夜 <b>" in shown.driver.find_element("tag name", "body").text
        assert not _silences(around)
        shown.driver.find_element("tag name", "button").click()
        # The click returns while the next page is still to come.
        eventually(lambda: "It is silenced for 2 h." in str(shown.tell("document.body?.innerText")))
    (silence,) = _silences(around)
    assert {each["name"]: each["value"] for each in silence["matchers"]} == {
        "alertname": "KLExplosion",
        "run": "夜 <b>",
    }


def _silences(around: Around) -> list[dict[str, list[dict[str, str]]]]:
    text = http_client.read(f"{around.alertmanager.url}/api/v2/silences")
    found: list[dict[str, list[dict[str, str]]]] = json.loads(text or "[]")
    return found
