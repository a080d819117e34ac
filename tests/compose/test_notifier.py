"""The notifier in a container: it comes and goes with its receivers, and loses nothing when it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compose.checkout import Checkout, until
from tests.real.docker import BRIDGE, Docker
from tests.real.robots import Feishu
from tests.runs.lines import console

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


def _sick(folder: Path, run: str) -> None:
    """A log whose loss is no number any more."""
    lines = [console(step, {"actor/kl_loss": 0.01, "critic/score/mean": 0.5}) for step in range(1, 30)]
    lines += [console(30, {"actor/kl_loss": float("nan"), "critic/score/mean": 0.5})]
    (folder / "runs").mkdir(exist_ok=True)
    (folder / "runs" / f"{run}.log").write_text("\n".join([*lines, ""]))


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
    _sick(stack.folder, "sick-1")
    until(lambda: robot.requests and stack.page("notifier", "/api/v1/deliveries")["deliveries"], "it tries")
    killed = stack.containers()["notifier"]["Id"]
    docker.docker("kill", "--signal=KILL", killed)
    docker.docker("start", killed)
    robot.fault = ""
    until(lambda: _named(robot, "sick-1"), "what it had taken arrives after a kill")

    until(lambda: _waiting(stack) == 0, "nothing waits")
    assert _named(robot, "sick-1") == 1
    assert stack.stepwatch("status").returncode == 0

    _apply(stack)
    assert stack.containers().keys() == before


def _waiting(stack: Checkout) -> int:
    deliveries = stack.page("notifier", "/api/v1/deliveries")["deliveries"]
    return sum(each["state"] == "waiting" for each in deliveries)
