"""The bridge in a container: it comes and goes with what needs it, and reaches robots and wrappers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.runs.files import launch
from stepwatch.system.environment import CHECKOUT
from tests.compose.checkout import Checkout, until
from tests.compose.conftest import SETTINGS, Sink
from tests.e2e.writer import writing
from tests.own_logs import SICK
from tests.real.docker import BRIDGE, Docker
from tests.real.ending import Started, ended
from tests.real.robots import Feishu

pytestmark = [pytest.mark.e2e, pytest.mark.world]

SECRET = "SECs3cret-of-the-robot"
STEPS = ["evidence", "notify", "stop"]
ACTIONS: dict[str, Any] = {
    "veto": "5s",
    "policies": [{"on": "KLExplosion", "for": "1s", "runs": "explode-*", "do": STEPS}],
}
OWNER = 4321
"""Of the folder of the runs: not root, as which the wrapper runs here."""


@pytest.fixture(name="stack", scope="module")
def _stack(docker: Docker, checkout: Checkout) -> Iterator[Checkout]:
    runs = checkout.folder / "runs"
    runs.mkdir(exist_ok=True)
    os.chown(runs, OWNER, OWNER)
    with checkout.running("bridge"):
        yield checkout


@pytest.fixture(name="started")
def _started() -> Iterator[Started]:
    with ended() as started:
        yield started


def _apply(stack: Checkout, **actions: Any) -> None:
    stack.write({**SETTINGS, **({"actions": actions} if actions else {})})
    done = stack.stepwatch("up")
    assert done.returncode == 0, done.stdout + done.stderr


def _line(stack: Checkout) -> list[str]:
    status = stack.stepwatch("status").stdout.splitlines()
    return next((line.split() for line in status if line.split()[:1] == ["bridge"]), [])


def _train(stack: Checkout, started: Started, fault: str, number: int) -> subprocess.Popen[bytes]:
    run = f"{fault}-{number}"
    trainer = [sys.executable, "-m", "tests.bridge.verl", fault, "data.train_batch_size=256"]
    place = f"trainer.default_local_dir={stack.folder.parent / 'ckpt' / run}"
    wrapper = [sys.executable, "-m", "stepwatch", "run", "--runs", str(stack.folder / "runs"), "--name", run]
    started.append(
        subprocess.Popen([*wrapper, "--", *trainer, place], stdout=subprocess.DEVNULL, cwd=CHECKOUT)
    )
    return started[-1]


def _known(stack: Checkout, run: str) -> list[dict[str, Any]]:
    actions = stack.page("bridge", "/api/v1/actions")["actions"]
    return [each for each in actions if each["run"] == run]


def _launch(stack: Checkout, run: str) -> launch.Launch:
    found = launch.read(stack.folder / "runs" / f"{run}.log")
    assert found is not None
    return found


def test_it_is_switched_on_reaches_wrappers_outside_of_the_containers_and_is_switched_off(
    docker: Docker, stack: Checkout, started: Started
) -> None:
    before = stack.containers().keys()
    assert "bridge" not in before
    sink = Sink(docker, stack)

    _apply(stack, **ACTIONS)
    assert stack.containers().keys() == {*before, "bridge"}
    assert _line(stack)[1] == "up"
    dry = _train(stack, started, "explode", 1)
    until(lambda: [each["outcome"] for each in _known(stack, "explode-1")] == ["done"], "the dry run is over")
    assert [*_known(stack, "explode-1")[0]["results"].values()] == ["dry run: not done"] * 2
    assert dry.poll() is None
    assert _launch(stack, "explode-1").ended is None

    _apply(stack, dry_run=False, **ACTIONS)
    trainer, other = _train(stack, started, "explode", 2), _train(stack, started, "healthy", 1)
    until(lambda: [each["outcome"] for each in _known(stack, "explode-2")] == ["done"], "it is stopped")
    trainer.wait()
    (action,) = _known(stack, "explode-2")
    assert _launch(stack, "explode-2").cause == f"stopped by stepwatch: KLExplosion ({action['id']})"
    archive = action["results"]["evidence"]
    assert stack.compose("--profile=bridge", "exec", "-T", "bridge", "ls", archive).strip() == archive
    until(lambda: ("ActionTaken", "explode-2") in sink.alerts("firing"), "the message of it arrives")
    assert other.poll() is None
    assert _known(stack, "healthy-1") == []

    stack.compose("--profile=bridge", "exec", "-T", "bridge", "touch", "/bridge/off")
    assert stack.page("bridge", "/api/v1/actions")["off"] is True
    stack.compose("--profile=bridge", "exec", "-T", "bridge", "rm", "/bridge/off")
    assert stack.page("bridge", "/api/v1/actions")["off"] is False

    sink.close()
    _apply(stack)
    assert stack.containers().keys() == before
    assert _line(stack) == []


def test_a_robot_gets_what_fires_over_a_kill_of_the_bridge(docker: Docker, stack: Checkout) -> None:
    secrets = stack.folder / "secrets"
    secrets.mkdir(exist_ok=True)
    with Feishu(secret=SECRET, host=BRIDGE) as robot:
        (secrets / "robot-url").write_text(robot.url.replace(BRIDGE, "host.docker.internal"))
        (secrets / "robot-secret").write_text(SECRET)
        keys = {"url_file": "secrets/robot-url", "secret_file": "secrets/robot-secret"}
        stack.write({"receivers": [{"name": "chat", "feishu": keys}]})
        done = stack.stepwatch("up")
        assert done.returncode == 0, done.stdout + done.stderr
        tested = stack.stepwatch("test-alert", "chat")
        assert (tested.returncode, "success" in tested.stdout) == (0, True), tested.stdout + tested.stderr

        robot.fault = "503"
        with writing(SICK, stack.folder / "runs/sick-1.log", "--rate", "5", "--stay"):
            until(lambda: stack.page("bridge", "/api/v1/robots")[0]["waiting_seconds"] > 0, "it waits")
            killed = stack.containers()["bridge"]["Id"]
            docker.docker("kill", "--signal=KILL", killed)
            docker.docker("start", killed)
            robot.fault = ""
            until(
                lambda: any("KLExplosion  sick-1" in text for text in robot.texts()),
                "it arrives after a kill",
            )
        stack.write({"receivers": []})
        assert stack.stepwatch("up").returncode == 0
        assert "bridge" not in stack.containers()
