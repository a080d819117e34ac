"""What the demo raises in the real stack, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.stack import PAIRS, ROOT, Stack
from tests.real.waiting import let_pass

pytestmark = [pytest.mark.e2e, pytest.mark.world]

PROMISED = {
    ("KLExplosion", "demo/kl-explodes"),
    ("RewardStagnation", "demo/stagnates"),
    ("Stalled", "demo/hangs"),
}
CYCLES = 36
"""Evaluations of the rules in three minutes."""


@pytest.mark.parametrize("versions", PAIRS[-1:], ids=lambda versions: "prometheus-" + versions[0])
def test_the_sick_runs_alert_in_three_minutes_and_the_healthy_one_does_not(
    tmp_path: Path, versions: tuple[str, str]
) -> None:
    raised: set[tuple[str, str]] = set()
    made = Stack(tmp_path / "stack", versions)
    made.find_demo()
    with made as stack:
        command = [sys.executable, "-m", "demo", "--path", str(stack.runs)]
        with subprocess.Popen(command, cwd=ROOT) as process:
            let_pass(CYCLES, stack.evaluations, meanwhile=lambda: raised.update(stack.firing()))
            steps = stack.query("sum by (run) (rl_step)")
            servers = stack.query('up{role="rollout",run="demo/healthy"} == 1')
            pages = {
                name: stack.query(expr)
                for name, expr in {
                    "nodes of Ray": "ray_node_mem_total",
                    "trainer": "verl_average_reward",
                    "GPUs": 'rl_run_node_gpu_info{run="demo/healthy"}',
                }.items()
            }
            process.terminate()

    assert raised >= PROMISED
    assert {alert for alert in raised if alert[1] not in ("", "demo/kl-explodes")} <= PROMISED
    assert {alert for alert in raised if alert[1] == ""} <= {("Watchdog", "")}
    assert len(servers) == 2
    assert {name: len(found) for name, found in pages.items()} == {
        "nodes of Ray": 2,
        "trainer": 1,
        "GPUs": 8,
    }
    assert {result["metric"]["run"] for result in steps} == {
        f"demo/{name}" for name in ("healthy", "kl-explodes", "stagnates", "hangs")
    }
