"""The whole stack: a run whose KL explodes is stopped by what its rules, routes and wrapper do together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.runs.files import launch
from stepwatch.deploy.native import stack as native
from stepwatch.system.environment import CHECKOUT
from tests.e2e.stack import PAIRS, PARTS, Stack, server
from tests.real.waiting import eventually

pytestmark = pytest.mark.world

TRAINER = """
import sys, time
for step in range(1, 10_000):
    kl = 0.02 + (3.0 if step > 60 and "explode" in sys.argv else 0.001 * (step % 3))
    score = 0.5 + 0.01 * (step % 5)
    print(f"step:{step} - critic/score/mean:{score} - actor/kl_loss:{kl} - actor/entropy_loss:0.3 "
          f"- training/global_step:{step} - critic/kl:{kl}", flush=True)
    time.sleep(0.02 if step < 58 else 2)
"""


class Acting(Stack):
    names = (*PARTS, "actions")


def started(stack: Stack, name: str, *how: str) -> subprocess.Popen[bytes]:
    words = ("-m", "stepwatch", "run", "--runs", str(stack.runs), "--name", name, "--")
    command = [sys.executable, *words, sys.executable, "-c", TRAINER, *how]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=CHECKOUT)


@pytest.mark.parametrize("versions", PAIRS, ids=["oldest", "newest"])
def test_a_run_whose_kl_explodes_is_stopped_and_its_neighbour_is_not(
    tmp_path: Path, versions: tuple[str, str]
) -> None:
    policy = {"on": "KLExplosion", "for": "5s", "do": ["evidence", "notify", "stop"]}
    settings = {"dry_run": False, "veto": "5s", "policies": [policy]}
    stack = Acting(tmp_path, versions, actions=settings)
    actions = native.Stack(stack.config, stack.state, stack.runs).actions()
    with stack, server(actions) as service:
        sick, well = started(stack, "sick", "explode"), started(stack, "well")
        try:
            stack.wait_sent("sick", {"KLExplosion"})
            pending = stack.wait_sent("sick", {"ActionPending"})
            eventually(lambda: sick.poll() is not None, seen=service.log.read_text)
            taken = stack.wait_sent("sick", {"ActionTaken"})
            stack.wait_until(
                lambda: stack.query('stepwatch_action_timestamp_seconds{run="sick",outcome="done"}')
            )
        finally:
            for each in (sick, well):
                alive = each.poll() is None
                if each is well:
                    assert alive
                each.terminate()
                each.wait()

    assert "Veto: " in pending["annotations"]["description"]
    assert taken["annotations"]["summary"] == "Run was stopped"
    known = launch.read(stack.runs / "sick.log")
    assert known is not None
    assert known.cause.startswith("stopped by stepwatch: KLExplosion")
