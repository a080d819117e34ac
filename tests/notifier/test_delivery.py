"""What the notifier takes arrives: once, in its order, within limits, whatever the robot does meanwhile."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.notifier.stack import Notifier, alert, payload
from tests.real import eventually
from tests.real.robots import KINDS, TOKEN, DingTalk, Feishu, Robot, WeCom

SECRET = "SECs3cret-of-the-robot"


def arrived(robot: Robot, word: str) -> int:
    """In how many messages a word came."""
    return sum(word in text for text in robot.texts())


def test_a_signed_message_with_its_keyword_arrives_and_its_answer_is_shown(tmp_path: Path) -> None:
    robots = {
        "one": Feishu(secret=SECRET, keyword="stepwatch-word"),
        "two": DingTalk(secret=SECRET, keyword="stepwatch-word"),
        "three": WeCom(),
    }
    with Notifier(tmp_path, robots, keywords={"one": "stepwatch-word", "two": "stepwatch-word"}) as notifier:
        for name, robot in robots.items():
            assert notifier.post(alert(), to=name) == 200
            eventually(lambda robot=robot: robot.received, seen=notifier.seen)
            eventually(lambda name=name: notifier.deliveries(name)[0]["state"] == "delivered")
            assert "0" in notifier.deliveries(name)[0]["answer"]
            assert notifier.metric("delivered_total", receiver_name=name) == 1
            assert notifier.metric("failures_total", receiver_name=name) == 0


def test_the_same_change_of_a_group_is_delivered_once_over_retries_and_restarts(tmp_path: Path) -> None:
    robot = Feishu()
    with Notifier(tmp_path, {"chat": robot}) as notifier:
        firing, over = alert(), alert(over=True)
        for _ in range(3):
            assert notifier.post(firing, group="g") == 200
        eventually(lambda: notifier.deliveries()[0]["state"] == "delivered", seen=notifier.seen)
        notifier.server.kill()
        notifier.server.start()
        assert notifier.post(firing, group="g") == 200
        assert notifier.post(over, group="g") == 200
        assert notifier.post(over, group="g") == 200
        eventually(lambda: len(robot.received) == 2, seen=notifier.seen)
        assert notifier.post(alert("KLHigh"), group="other") == 200
        eventually(lambda: len(robot.received) == 3, seen=notifier.seen)

    assert ["Resolved" in text for text in robot.texts()] == [False, True, False]


def test_what_still_fires_is_sent_again_when_alertmanager_repeats_it(tmp_path: Path) -> None:
    robot = Feishu()
    with Notifier(tmp_path, {"chat": robot}, settings={"repeat": 0.01}) as notifier:
        for count in (1, 2):
            assert notifier.post(alert(), group="g") == 200
            eventually(lambda count=count: len(robot.received) == count, seen=notifier.seen)


@pytest.mark.parametrize("fault", ["half", "500", "rate_limit", "html"])
def test_a_fault_that_passes_delays_a_message_and_loses_nothing(tmp_path: Path, fault: str) -> None:
    robot = WeCom()
    robot.fault = fault
    with Notifier(tmp_path, {"chat": robot}) as notifier:
        notifier.post(alert(run="r1"))
        eventually(lambda: notifier.metric("retries_total") >= 1, seen=notifier.seen)
        notifier.server.kill()
        robot.fault = ""
        notifier.server.start()
        eventually(lambda: arrived(robot, "r1"), seen=notifier.seen)

    assert arrived(robot, "r1") == 1


def test_a_corrected_secret_file_is_tried_at_once_and_what_waited_arrives(tmp_path: Path) -> None:
    robot = DingTalk(secret=SECRET)
    with Notifier(tmp_path, {"chat": robot}, secrets={"chat": "wrong"}) as notifier:
        for run in ("r1", "r2"):
            notifier.post(alert(run=run))
        eventually(lambda: notifier.metric("failures_total", reason="signature") >= 1, seen=notifier.seen)
        words = KINDS["dingtalk"].answers["signature"]["errmsg"]
        page = http_client.read(f"{notifier.url}/metrics") or ""
        (problem,) = re.findall(r'^stepwatch_notifier_error_info{.*text="(.*)"} 1', page, re.MULTILINE)
        assert words[:20] in problem
        time.sleep(0.05)
        (tmp_path / "chat.secret").write_text(SECRET)
        eventually(lambda: arrived(robot, "r1") and arrived(robot, "r2"), seen=notifier.seen)


def test_a_burst_is_merged_within_the_limit_and_every_alert_is_named(tmp_path: Path) -> None:
    robots: dict[str, Robot] = {"one": Feishu(), "two": DingTalk(), "three": WeCom()}
    runs = [f"run-{number:03d}" for number in range(60)]
    with Notifier(tmp_path, robots) as notifier:
        for run in runs:
            for name in robots:
                assert notifier.post(alert(run=run), to=name) == 200
        for robot in robots.values():
            eventually(lambda robot=robot: all(arrived(robot, run) for run in runs), seen=notifier.seen)

    for robot in robots.values():
        assert robot.over_limit == 0
        assert [arrived(robot, run) for run in runs] == [1] * len(runs)


def test_a_full_disk_is_answered_with_503_and_nothing_is_taken(tmp_path: Path) -> None:
    robot = Feishu()
    with Notifier(tmp_path, {"chat": robot}) as notifier:
        notifier.server.stop()
        words = " ".join(notifier.server.command)
        notifier.server.command = ["bash", "-c", f"trap '' XFSZ; ulimit -f 100; exec {words}"]
        notifier.server.start()
        long = {"description": "x" * 30_000}
        answers = [notifier.post(alert(run=f"r{n}", annotations=long)) for n in range(12)]

    assert 503 in answers
    assert set(answers) <= {200, 503}
    assert len({text.split("\n")[0] for text in robot.texts()}) <= answers.count(200)


def test_only_alertmanager_may_post_and_only_to_known_receivers(tmp_path: Path) -> None:
    with Notifier(tmp_path, {"chat": Feishu()}) as notifier:
        assert notifier.send(payload(alert()), password="guessed") == 401
        assert notifier.ask("/alerts/chat", "POST", payload(alert()))[0] == 401
        assert notifier.post(alert(), to="nobody") == 404
        assert notifier.send(b"{}") == notifier.send(b"[1") == 400
        assert notifier.ask("/", Host="evil.example")[0] == 403
        assert notifier.ask("/silence/1", "POST", b"x", Origin="http://evil.example")[0] == 403


def test_no_secret_is_logged_or_shown(tmp_path: Path) -> None:
    robots: dict[str, Robot] = {
        "one": Feishu(secret="SECwanted"),
        "two": DingTalk(secret="SECwanted"),
        "three": WeCom(),
    }
    robots["three"].fault = "404"
    with Notifier(tmp_path, robots, secrets={"one": SECRET, "two": SECRET}) as notifier:
        for name in robots:
            notifier.post(alert(), to=name)
        eventually(lambda: notifier.metric("failures_total") >= 3, seen=notifier.seen)
        shown = "".join(notifier.ask(page)[1] for page in ("/", "/metrics", "/api/v1/deliveries"))
        shown += notifier.server.log.read_text()

    assert "signature" in shown
    for secret in (TOKEN, SECRET, *TOKEN.split("-")[1:3]):
        assert secret not in shown


def test_receivers_of_one_robot_share_its_limit(tmp_path: Path) -> None:
    with DingTalk() as robot:
        urls = {"day": robot.url, "night": robot.url}
        kinds, secrets = dict.fromkeys(urls, "dingtalk"), dict.fromkeys(urls, robot.secret)
        with Notifier(tmp_path, urls, kinds=kinds, secrets=secrets) as notifier:
            names = [f"{to}-{number:02d}" for number in range(15) for to in urls]
            for name in names:
                notifier.post(alert(run=name), to=name.partition("-")[0])
            eventually(lambda: all(arrived(robot, name) for name in names), seen=notifier.seen)
    assert robot.over_limit == 0
