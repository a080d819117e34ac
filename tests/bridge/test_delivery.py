"""Real Prometheus and Alertmanager, the bridge, and robots that behave as their vendors document."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from stepwatch.operate.test_alert import send_test
from tests.bridge.bridged import Bridged, named
from tests.bridge.webhook import Bridge, alert, payload
from tests.e2e.stack import PAIRS
from tests.real import free_port
from tests.real.asking import ask
from tests.real.at_once import Scenarios
from tests.real.robots import TOKEN, DingTalk, Feishu, Robot, WeCom
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e
INTERVAL = 10  # the shortest for which Alertmanager retries
QUICK = {
    "notify": {
        each: {"group_wait": "1s", "group_interval": f"{INTERVAL}s"} for each in ("critical", "warning")
    }
}
scenario = Scenarios()
SECRET = "SECs3cret-of-the-robot"


@scenario
def a_queue_keeps_to_the_robots_limit_critical_first_and_is_no_failure(
    folder: Path, versions: tuple[str, str]
) -> None:
    robot = WeCom()
    with robot, Bridged(folder, versions, {"chat": robot}, **QUICK) as stack:
        warnings, criticals = ([f"run-{kind}{number}" for number in range(16)] for kind in "wc")
        stack.post(*warnings, severity="warning")
        eventually(lambda: len(robot.received) >= 10, seen=stack.bridge.log.read_text)
        stack.post(*criticals)
        eventually(lambda: len(named(robot)) == 32, seen=lambda: f"{named(robot)} {robot.over_limit}")

        assert set(named(robot).values()) == {1}
        assert robot.over_limit == 0
        order = [run for text in robot.texts() for run in named(robot) if f"{run} " in f"{text} "]
        # Of what waited for the next minute no warning came before a critical alert.
        waited = ["-c" in run for run in order[20:]]
        assert waited == sorted(waited, reverse=True), order
        assert stack.metric("deferred_total") > 0
        assert stack.metric("refused_total") == 0
        assert stack.failing() == []


@scenario
def a_robot_that_is_down_gets_what_still_fires_once_it_is_back(
    folder: Path, versions: tuple[str, str]
) -> None:
    port = free_port()
    down = SimpleNamespace(kind="feishu", url=f"http://127.0.0.1:{port}{Feishu.path}", secret=SECRET)
    with Bridged(folder, versions, {"chat/聊天": down}, **QUICK) as stack:
        stack.post("run-a", "run-b")
        eventually(lambda: stack.metric("deferred_total") >= 4, seen=stack.bridge.log.read_text)
        stack.post("run-b", over=True)
        time.sleep(
            INTERVAL + 2
        )  # Alertmanager goes on with what it began: until then it says that run-b fires
        assert stack.metric("waiting_seconds") > INTERVAL
        with Feishu(secret=SECRET, port=port) as robot:
            eventually(lambda: named(robot)["run-a"], seen=stack.bridge.log.read_text)
            time.sleep(INTERVAL + 2)

        assert named(robot) == {"run-a": 1}, robot.texts()


@scenario
def a_wrong_secret_is_a_failure_in_the_robots_words_and_corrected_without_a_restart(
    folder: Path, versions: tuple[str, str]
) -> None:
    robot = DingTalk(secret=SECRET)
    other = Feishu()
    receivers = {"chat": robot, "other": other}
    with robot, other, Bridged(folder, versions, receivers, {"chat": "wrong"}, **QUICK) as stack:
        stack.post("run-a")
        stack.wait_until(stack.failing)
        assert stack.metric("refused_total") >= 1
        rules = stack.query('stepwatch_bridge_error_info{receiver_name="chat"}')
        assert (
            rules[0]["metric"]["text"]
            == "errcode 310000 sign not match, more: [https://ding-doc.dingtalk.com]"
        )
        (folder / "secret-0").write_text(SECRET)
        eventually(lambda: named(robot)["run-a"], seen=stack.bridge.log.read_text)
        assert SECRET not in stack.bridge.log.read_text()


@scenario
def a_killed_bridge_loses_nothing_and_sends_nothing_thrice(folder: Path, versions: tuple[str, str]) -> None:
    robot = Feishu()
    runs = [f"run-{number}" for number in range(60)]
    with robot, Bridged(folder, versions, {"chat": robot}, **QUICK) as stack:
        stack.post(*runs)
        for count in (5, 20, 40):
            eventually(lambda count=count: len(named(robot)) >= count, seen=stack.bridge.log.read_text)
            stack.bridge.kill()
            stack.bridge.start()
        eventually(lambda: len(named(robot)) == 60, seen=stack.bridge.log.read_text)

    assert set(named(robot)) == set(runs)
    assert max(named(robot).values()) <= 2


@scenario
def a_test_shows_what_the_robot_answers(folder: Path, versions: tuple[str, str]) -> None:
    robots: dict[str, Robot] = {
        "team": Feishu(secret=SECRET),
        "unsigned": DingTalk(secret=SECRET),
        "gone": WeCom(),
    }
    robots["gone"].fault = "revoked"
    with ExitStack() as parts:
        for robot in robots.values():
            parts.enter_context(robot)
        stack = parts.enter_context(Bridged(folder, versions, robots, {"unsigned": "wrong"}, **QUICK))
        for name, code, words in (
            ("team", 0, "The robot's answer: code 0 success"),
            ("unsigned", 1, "Fix: check secret_file"),
            ("gone", 1, "errcode 93000 invalid webhook url"),
        ):
            lines: list[str] = []
            ended = send_test(folder / "config.yaml", name, stack, lines.append)  # type: ignore[arg-type]
            said = "\n".join(lines)
            assert (ended, words in said) == (code, True), said
            assert SECRET not in said
            assert TOKEN not in said


@pytest.fixture(name="running", scope="module", params=PAIRS, ids=["oldest", "newest"])
def _running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    place = tmp_path_factory.mktemp("delivery")
    every = Scenarios({name: partial(run, place / name) for name, run in scenario.items()})
    with every.running(request.param) as running:
        yield running


@pytest.mark.parametrize("name", scenario)
def test_on_the_oldest_and_newest_versions(running: dict[str, Future[None]], name: str) -> None:
    running[name].result()


def test_what_is_not_alertmanagers_is_refused_with_a_reason_and_nothing_is_sent(tmp_path: Path) -> None:
    robot = Feishu()
    with Bridge(tmp_path, {"chat": robot}) as bridge:
        old = {**json.loads(payload(alert())), "version": "3"}
        cases = {
            "not a JSON": (b"{", 400, "This is not a notification: "),
            "another document": (b'{"alerts": []}', 400, "Expected: Alertmanager's webhook, version 4"),
            "too old": (json.dumps(old).encode(), 400, "it is of version '3'"),
            "empty": (json.dumps({**old, "version": "4", "alerts": []}).encode(), 400, "it has no alert"),
        }
        for name, (body, status, words) in cases.items():
            got = bridge.send(body)
            assert (got[0], words in got[1]) == (status, True), (name, got)
        head = {"Content-Length": str(17 << 20)}
        large = ask(f"127.0.0.1:{bridge.port}", "/alerts/chat", "POST", b"{", **head)
        assert (large.status, b"Expected: at most 16777216 bytes" in large.body) == (413, True)
        assert bridge.send(payload(alert()), password="guess")[0] == 401
        assert bridge.send(payload(alert()), "/alerts/nobody")[0] == 404
        assert robot.requests == 0
        assert bridge.post(alert()) == (200, "code 0 success\n")
        assert bridge.post(alert()) == (200, "the robot has just taken this\n")
        assert len(robot.received) == 1
