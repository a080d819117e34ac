"""What each channel's messages say, how long they are, and that no run's name is markup in them."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from exporter.notifier.channel import encoded
from exporter.notifier.outbox import parse
from exporter.notifier.wording import Known, silenced_by
from tests.links import LINKS
from tests.notifier import golden
from tests.notifier.golden import FOLDER, ROBOTS, card, messages, robot, wording
from tests.notifier.stack import alert, payload

LIMITS = {"feishu": 20_000, "dingtalk": 20_000, "wecom": 4096, "apprise": 3000}


def size(kind: str, message: Any) -> int:
    if kind == "wecom":
        return len(message["markdown"]["content"].encode("utf-8", "replace"))
    if kind == "apprise":
        return len(message["body"].encode("utf-8", "replace"))
    return len(encoded(message))


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("kind", ROBOTS)
def test_messages_are_as_committed(kind: str) -> None:
    assert golden.written(kind) == (FOLDER / f"{kind}.json").read_text(), (
        "run python -m tests.notifier.golden"
    )


@pytest.mark.parametrize("kind", ROBOTS)
def test_no_message_is_longer_than_its_channel_takes_and_what_is_cut_is_counted(kind: str) -> None:
    found = messages(kind)
    assert all(size(kind, message) <= LIMITS[kind] for message in found.values())
    text = json.dumps(found["long"], ensure_ascii=False)
    (left,) = re.findall(r"and (\d+) more", text)
    assert text.count("instance=node-") + int(left) == 200
    assert text.count("instance=node-") > 5


@pytest.mark.parametrize(("own", "shown"), LINKS)
def test_a_dashboard_is_that_of_the_rules_own_link_with_its_variables(own: str, shown: str) -> None:
    one = alert(run="ppo/gsm8k", cluster="here", annotations={"dashboard_url": own})
    notification, _ = parse(payload(one))
    (link, *_) = wording("en").card(notification, 1).links

    page, _, during = link.url.partition("from=")
    assert page == f"https://grafana.example/d/{shown}"
    assert during == "1767344340000&to=1767369540000"


@pytest.mark.parametrize(
    ("start", "shown"),
    [("1767365000123", "1767365000123"), ("1767340000000", "1767344340000"), ("1", "1767344340000")],
)
def test_a_dashboard_begins_6_h_before_the_onset_or_at_the_start_of_the_run(start: str, shown: str) -> None:
    one = alert(
        annotations={"dashboard_url": f"https://g/d/stepwatch-training?var-run=a&from={start}&to=now"}
    )
    notification, _ = parse(payload(one))
    (link, *_) = wording("en").card(notification, 1).links

    assert link.url.endswith(f"/d/stepwatch-training?var-run=a&from={shown}&to=1767369540000")


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


def test_a_silence_names_the_alert_and_what_it_is_about() -> None:
    notification, _ = parse(payload(alert(run='a "b" c')))
    assert silenced_by(notification.labels) == {"alertname": "KLExplosion", "run": 'a "b" c'}


def test_what_the_circuit_breaker_says_offers_no_silence() -> None:
    notification, _ = parse(payload(alert("ActionPending", topic="actions")))
    links = wording("en").card(notification, 1).links
    assert [link.words for link in links] == ["Dashboard at that time", "Runbook"]


def test_what_the_description_names_is_not_named_again() -> None:
    said = {"description": "KL 1.2, limit 0.5; step 40; RewardDrop fires."}
    notification, _ = parse(payload(alert(annotations=said)))
    card_ = wording("en").card(notification, 1, Known("42", ("EntropyCollapse", "RewardDrop")))
    assert "Also firing: EntropyCollapse" in card_.facts


def test_a_keyword_is_added_where_a_message_lacks_it() -> None:
    secrets = golden.Secrets(golden.Path("url"))
    for kind in ("feishu", "dingtalk"):
        for word, count in (("监控告警", 1), ("KLExplosion", 0)):
            made = ROBOTS[kind](secrets, wording("en"), word)
            text = json.dumps(made.compose([card("one")])[0], ensure_ascii=False)
            plain = json.dumps(robot(kind).compose([card("one")])[0], ensure_ascii=False)
            assert text.count(word) == plain.count(word) + count
