"""Ten minutes and more of robots that are down, block or have too much to take, all at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bridge.bridged import Bridged, named
from tests.e2e.stack import PAIRS
from tests.real import free_port
from tests.real.at_once import Scenarios
from tests.real.robots import DingTalk, Feishu
from tests.real.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.world]
scenario = Scenarios()
GROUPS = [f"run-{number}" for number in range(200)]
OUTAGE_SECONDS = 600


@scenario
def two_hundred_groups_arrive_within_12_minutes(folder: Path, versions: tuple[str, str]) -> None:
    robot, failures = DingTalk(), 0
    with robot, Bridged(folder, versions, {"chat": robot}) as stack:
        begun = time.monotonic()
        stack.post(*GROUPS)
        while len(named(robot)) < len(GROUPS) and time.monotonic() - begun < 2 * OUTAGE_SECONDS:
            failures += len(stack.failing())
            time.sleep(5)
        took = time.monotonic() - begun

        assert set(named(robot)) == set(GROUPS)
        assert took < 720
        assert (robot.over_limit, failures, max(named(robot).values())) == (0, 0, 1)


@scenario
def a_bridge_killed_meanwhile_loses_none_and_is_not_blocked(folder: Path, versions: tuple[str, str]) -> None:
    robot = DingTalk()
    with robot, Bridged(folder, versions, {"chat": robot}) as stack:
        stack.post(*GROUPS)
        for count in (10, 60, 110):
            eventually(lambda count=count: len(named(robot)) >= count, pause=0.5)
            stack.bridge.kill()
            stack.bridge.start()
        begun = time.monotonic()
        while len(named(robot)) < len(GROUPS) and time.monotonic() - begun < 2 * OUTAGE_SECONDS:
            time.sleep(5)

        assert set(named(robot)) == set(GROUPS)
        assert robot.over_limit == 0
        assert max(named(robot).values()) <= 2


@scenario
def a_robot_that_is_down_for_ten_minutes_gets_what_still_fires(
    folder: Path, versions: tuple[str, str]
) -> None:
    port = free_port()
    down = SimpleNamespace(kind="feishu", url=f"http://127.0.0.1:{port}{Feishu.path}", secret="")
    with Bridged(folder, versions, {"chat": down}) as stack:
        stack.post("run-a", "run-b")
        time.sleep(OUTAGE_SECONDS / 2)
        stack.post("run-b", over=True)
        time.sleep(OUTAGE_SECONDS / 2)
        with Feishu(port=port) as robot:
            eventually(lambda: named(robot)["run-a"], seen=stack.bridge.log.read_text)
            time.sleep(90)

        assert named(robot) == {"run-a": 1}


@scenario
def a_robot_that_another_sender_had_blocked_is_left_alone_until_the_end(
    folder: Path, versions: tuple[str, str]
) -> None:
    robot = DingTalk()
    with robot, Bridged(folder, versions, {"chat": robot}) as stack:
        for _ in range(21):
            robot.judge({}, {"msgtype": "markdown", "markdown": {"title": "", "text": ""}}, 10)
        others = len(robot.received)
        stack.post("run-a")
        eventually(lambda: robot.over_limit > 1, seen=stack.bridge.log.read_text)
        time.sleep(OUTAGE_SECONDS - 30)
        assert (robot.requests, len(robot.received)) == (1, others)
        begun = time.monotonic()
        while not any("run-a" in str(message) for message in robot.received):
            assert time.monotonic() - begun < 300, stack.bridge.log.read_text()
            time.sleep(1)


@pytest.fixture(name="running", scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    place = tmp_path_factory.mktemp("robots")
    every = Scenarios()
    for versions in PAIRS:
        for name, run in scenario.items():
            key = f"{name}-{versions[1]}"
            every[key] = partial(run, place / key, versions)
    with every.running() as running:
        yield running


@pytest.mark.parametrize("versions", PAIRS, ids=["oldest", "newest"])
@pytest.mark.parametrize("name", scenario)
def test_robots(running: dict[str, Future[None]], name: str, versions: tuple[str, str]) -> None:
    running[f"{name}-{versions[1]}"].result()
