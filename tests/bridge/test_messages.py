"""What each robot's messages say, how long they are, and that no run's name is markup in them."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from urllib.parse import unquote

import pytest

from exporter.bridge.robots import KINDS, encoded
from exporter.bridge.webhook import parse
from tests.bridge import golden
from tests.bridge.golden import FOLDER, messages, words
from tests.bridge.webhook import alert, payload
from tests.links import LINKS

LIMITS = {"feishu": 20_000, "dingtalk": 20_000, "wecom": 4096, "apprise": 3000}


def size(kind: str, message: Any) -> int:
    if kind == "wecom":
        return len(message["markdown"]["content"].encode())
    return len(message["body"].encode()) if kind == "apprise" else len(encoded(message))


def links(**how: Any) -> list[str]:
    """The addresses of a message about one alert."""
    return [link.url for link in words().card(parse(payload(alert(**how)))).links]


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_as_committed(kind: str) -> None:
    assert golden.written(kind) == (FOLDER / f"{kind}.json").read_text(), "run python -m tests.bridge.golden"


@pytest.mark.parametrize("kind", KINDS)
def test_no_message_is_longer_than_its_channel_takes_and_what_is_cut_is_counted(kind: str) -> None:
    found = messages(kind)
    assert all(size(kind, message) <= LIMITS[kind] for message in found.values())
    text = json.dumps(found["long"], ensure_ascii=False)
    (left,) = re.findall(r"and (\d+) more", text)
    assert text.count("instance=node-") + int(left) == 200
    assert text.count("instance=node-") > 5


@pytest.mark.parametrize(("own", "shown"), LINKS)
def test_a_dashboard_is_that_of_the_rules_own_link_with_its_variables(own: str, shown: str) -> None:
    link, *_ = links(run="ppo/gsm8k", cluster="here", annotations={"dashboard_url": own})

    page, _, during = link.partition("from=")
    assert page == f"https://grafana.example/d/{shown}"
    assert during == "1767344340000&to=1767369540000"


@pytest.mark.parametrize(
    ("start", "shown"),
    [("1767365000123", "1767365000123"), ("1767340000000", "1767344340000"), ("1", "1767344340000")],
)
def test_a_dashboard_begins_6_h_before_the_onset_or_at_the_start_of_the_run(start: str, shown: str) -> None:
    link, *_ = links(
        annotations={"dashboard_url": f"https://g/d/stepwatch-training?var-run=a&from={start}&to=now"}
    )

    assert link.endswith(f"/d/stepwatch-training?var-run=a&from={shown}&to=1767369540000")


@pytest.mark.parametrize("kind", ["dingtalk", "wecom"])
def test_a_hostile_name_is_not_markup(kind: str) -> None:
    message = messages(kind)["hostile run name"]
    text = message[message["msgtype"]]["content" if kind == "wecom" else "text"]
    ours = re.sub(
        r'<font color="[#\w]+">|</font>|\[[\w? ]+\]\(http\S+\)|^\*\*|\*\*$|^### |^> ', "", text, flags=re.M
    )
    assert not re.search(r"[<>\[\]`#*]", ours)
    assert "\u202e" not in text


def test_a_hostile_name_is_plain_text_of_a_card_and_whole_in_links() -> None:
    message = messages("feishu")["hostile run name"]
    assert "lark_md" not in json.dumps(message)
    encoded(message)
    links = [each["url"] for each in message["card"]["elements"][-1]["actions"]]
    assert all(re.fullmatch(r"[\w:/.?&=%#~-]+", link) for link in links)


def test_a_silence_is_of_the_alert_and_what_it_is_about() -> None:
    *_, link = links(run='a "b" c')
    form = "http://127.0.0.1:9093/#/silences/new?filter="
    assert unquote(link.removeprefix(form)) == '{alertname="KLExplosion",run="a \\"b\\" c"}'


def test_an_announcement_of_an_action_offers_no_silence() -> None:
    assert not any("/silences/" in link for link in links(name="ActionPending", topic="actions"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_keyword_is_added_where_a_message_lacks_it(kind: str) -> None:
    for word, more in (("监控告警", 1), ("KLExplosion", 0)):
        with_word, without = (
            json.dumps(messages(kind, key)["one"], ensure_ascii=False) for key in (word, "")
        )
        assert with_word.count(word) == without.count(word) + more
