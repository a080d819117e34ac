"""The notifier in a container: it comes and goes with its receivers, and loses nothing when it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compose.checkout import Checkout, until
from tests.e2e.writer import writing
from tests.own_logs import SICK
from tests.real.docker import BRIDGE, Docker
from tests.real.robots import Feishu

pytestmark = [pytest.mark.e2e, pytest.mark.world]

SECRET = "SECs3cret-of-the-robot"
ROBOT: dict[str, Any] = {"url_file": "secrets/robot-url", "secret_file": "secrets/robot-secret"}
RECEIVERS = {"receivers": [{"name": "chat", "feishu": ROBOT}]}


@pytest.fixture(name="robot", scope="module")
def _robot(docker: Docker) -> Iterator[Feishu]:
    with Feishu(secret=SECRET, host=BRIDGE) as robot:
        yield robot


@pytest.fixture(name="stack", scope="module")
def _stack(checkout: Checkout, robot: Feishu) -> Iterator[Checkout]:
    secrets = checkout.folder / "secrets"
    secrets.mkdir(exist_ok=True)
    (secrets / "robot-url").write_text(robot.url.replace(BRIDGE, "host.docker.internal"))
    (secrets / "robot-secret").write_text(SECRET)
    try:
        _apply(checkout)
        yield checkout
    finally:
        checkout.run("docker", "compose", "--profile=notifier", "down", "--volumes", "--timeout=5")


def _apply(stack: Checkout, **settings: Any) -> None:
    stack.write({"receivers": [], **settings})
    done = stack.stepwatch("up")
    assert done.returncode == 0, done.stdout + done.stderr


def _named(robot: Feishu, run: str) -> int:
    return sum(run in text for text in robot.texts())


def test_it_comes_with_a_robot_that_gets_each_message_once_over_a_kill_and_goes_with_it(
    docker: Docker, stack: Checkout, robot: Feishu
) -> None:
    before = stack.containers().keys()
    assert "notifier" not in before

    _apply(stack, **RECEIVERS)
    assert stack.containers().keys() == {*before, "notifier"}
    tested = stack.stepwatch("test-alert", "chat")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "success" in tested.stdout

    robot.fault = "503"
    with writing(SICK, stack.folder / "runs/sick-1.log", "--rate", "5", "--stay"):
        until(lambda: any(each["attempts"] for each in _waiting(stack)), "it tries")
        killed = stack.containers()["notifier"]["Id"]
        docker.docker("kill", "--signal=KILL", killed)
        docker.docker("start", killed)
        robot.fault = ""
        until(lambda: _named(robot, "sick-1"), "what it had taken arrives after a kill")

        until(lambda: not _waiting(stack), "nothing waits")
        assert "\n".join(robot.texts()).count("KLExplosion  sick-1") == 1
    until(lambda: stack.stepwatch("status").returncode == 0, "all is well")

    _apply(stack)
    assert stack.containers().keys() == before


def _waiting(stack: Checkout) -> list[dict[str, Any]]:
    deliveries = stack.page("notifier", "/api/v1/deliveries")["deliveries"]
    return [each for each in deliveries if each["state"] == "waiting"]
