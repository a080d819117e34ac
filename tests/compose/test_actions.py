"""The circuit breaker in a container: it comes and goes with its policies, and reaches a wrapper outside."""

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
from tests.real.docker import Docker
from tests.real.ending import Started, ended

pytestmark = [pytest.mark.e2e, pytest.mark.world]

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
    with checkout.running("actions"):
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
    return next((line.split() for line in status if line.split()[:1] == ["actions"]), [])


def _train(stack: Checkout, started: Started, fault: str, number: int) -> subprocess.Popen[bytes]:
    run = f"{fault}-{number}"
    trainer = [sys.executable, "-m", "tests.actions.verl", fault, "data.train_batch_size=256"]
    place = f"trainer.default_local_dir={stack.folder.parent / 'ckpt' / run}"
    wrapper = [sys.executable, "-m", "stepwatch", "run", "--runs", str(stack.folder / "runs"), "--name", run]
    started.append(
        subprocess.Popen([*wrapper, "--", *trainer, place], stdout=subprocess.DEVNULL, cwd=CHECKOUT)
    )
    return started[-1]


def _known(stack: Checkout, run: str) -> list[dict[str, Any]]:
    actions = stack.page("actions", "/api/v1/actions")["actions"]
    return [each for each in actions if each["run"] == run]


def _launch(stack: Checkout, run: str) -> launch.Launch:
    found = launch.read(stack.folder / "runs" / f"{run}.log")
    assert found is not None
    return found


def test_it_is_switched_on_reaches_wrappers_outside_of_the_containers_and_is_switched_off(
    docker: Docker, stack: Checkout, started: Started
) -> None:
    before = stack.containers().keys()
    assert "actions" not in before
    sink = Sink(docker, stack)

    _apply(stack, **ACTIONS)
    assert stack.containers().keys() == {*before, "actions"}
    assert _line(stack)[1] == "up"
    dry = _train(stack, started, "explode", 1)
    until(lambda: [each["outcome"] for each in _known(stack, "explode-1")] == ["done"], "the dry run is over")
    assert [each["text"] for each in _known(stack, "explode-1")[0]["results"].values()] == [
        "dry run: not done"
    ] * 2
    assert dry.poll() is None
    assert _launch(stack, "explode-1").ended is None

    _apply(stack, dry_run=False, **ACTIONS)
    trainer, other = _train(stack, started, "explode", 2), _train(stack, started, "healthy", 1)
    until(lambda: [each["outcome"] for each in _known(stack, "explode-2")] == ["done"], "it is stopped")
    trainer.wait()
    (action,) = _known(stack, "explode-2")
    assert _launch(stack, "explode-2").cause == f"stopped by stepwatch: KLExplosion ({action['id']})"
    archive = action["results"]["evidence"]["text"]
    assert stack.compose("--profile=actions", "exec", "-T", "actions", "ls", archive).strip() == archive
    until(lambda: ("ActionTaken", "explode-2") in sink.alerts("firing"), "the message of it arrives")
    # An alert that is older than the circuit breaker's start causes nothing.
    assert [other.poll(), dry.poll()] == [None, None]
    assert _known(stack, "healthy-1") == []

    stack.compose("--profile=actions", "exec", "-T", "actions", "touch", "/actions/off")
    assert stack.page("actions", "/api/v1/actions")["off"] is True
    stack.compose("--profile=actions", "exec", "-T", "actions", "rm", "/actions/off")
    assert stack.page("actions", "/api/v1/actions")["off"] is False

    sink.close()
    _apply(stack)
    assert stack.containers().keys() == before
    assert _line(stack) == []
