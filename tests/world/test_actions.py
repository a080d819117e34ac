"""Five real TRL trainings have a fault each and one has none: what was configured happens once, no more."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.bridge.acting import Acting
from tests.real import free_port
from tests.real.trainers import OFFLINE, TRL, environment
from tests.real.waiting import let_pass

pytestmark = pytest.mark.world

SAVING = ("--save-steps", "5", "--steps", "100000", "--pace", "0.5")
TRAININGS = {
    "oom": ("--later-reward", "greedy", "--later", "7"),
    "network": ("--later-reward", "served", "--later", "7"),
    "explode": ("--explode-after", "20", "--enable_jit_checkpoint"),
    "hang": ("--later-reward", "hanging", "--later", "7"),
    "killed": (),
    "healthy": (),
}
SETTINGS = {
    "retry": [
        {
            "name": "night",
            "rules": [{"failures": ["host_oom"], "replace": {"--batch *": "/2"}}, {"failures": ["network"]}],
            "interval": "5s",
            "resume": "trl",
        }
    ],
    "actions": {
        "dry_run": False,
        "veto": "5s",
        "policies": [
            {"on": "KLExplosion", "for": "1s", "do": ["evidence", "notify", "stop"]},
            {"on": "Stalled", "for": "1s", "do": ["evidence", "notify", "stop"]},
        ],
    },
    "alerts": {"Stalled": {"silence": "2m"}},
}
STEP = ("intent", "result")
LIMIT = 1000
"""Evaluations of the rules: six trainings share the processors."""


def test_what_was_configured_for_each_fault_of_a_training_happens_once_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    server = free_port()
    env = {**OFFLINE, "REWARD_PORT": str(server)}
    python = environment() / "python"
    with Acting(tmp_path, **SETTINGS) as stack:
        wrappers = {
            run: stack.train(
                run,
                *(python, "-I", "-u", TRL, "--output_dir", tmp_path / "out" / run, "--batch", "8"),
                *(*SAVING, *options),
                options=("--retry", "night"),
                env=env,
            )
            for run, options in TRAININGS.items()
        }
        stack.wait_until(lambda: stack.ends("network"), LIMIT)
        with socket.create_server(("127.0.0.1", server)):  # it is back before the retry begins to train
            stack.wait_until(lambda: stack.query('rl_step{run="killed"} >= 5'), LIMIT)
            os.kill(stack.trainer(wrappers["killed"], str(tmp_path / "out" / "killed")), signal.SIGKILL)
            stack.wait_until(lambda: stack.closed("explode") and stack.closed("hang"), LIMIT)
            stack.wait_until(lambda: stack.told("killed") and wrappers["explode"].poll() is not None, LIMIT)
            for run in ("oom", "network", "healthy"):
                stack.wait_until(lambda run=run: stack.query(f'rl_step{{run="{run}"}} >= 20'), LIMIT)
            let_pass(20, stack.evaluations)

            print({run: sorted(stack.sent(run)) for run in TRAININGS})
            batches = [each[each.index("--batch") + 1] for each in stack.commands("oom")]
            assert (batches, stack.ends("oom")) == (["8", "4"], ["out of memory"])
            assert (len(stack.commands("network")), stack.ends("network")) == (2, ["network error"])
            for run in ("oom", "network"):
                newest = f"--resume_from_checkpoint {tmp_path / 'out' / run / 'checkpoint-5'}"
                assert newest in " ".join(stack.commands(run)[1])

            assert stack.ends("killed") == ["SIGKILL"]
            assert "no retry: policy night has no rule for: SIGKILL" in stack.log_of("killed")
            assert stack.told("killed") == {"RunFailed"}

            assert stack.asked("explode") == ["stop"]
            (explosion,) = stack.known("explode")
            # enable_jit_checkpoint saves once more on SIGTERM, and ends in order.
            assert wrappers["explode"].returncode == 0
            assert stack.launch("explode").state == "stopped"
            assert stack.launch("explode").checkpoints

            assert stack.asked("hang") == ["stop"]
            (hang,) = stack.known("hang")
            for action in (explosion, hang):
                assert Path(action["results"]["evidence"]["text"]).is_file()
            assert stack.audit() == {
                "explode": [
                    ("opened", ""),
                    *((each, "evidence") for each in STEP),
                    ("announced", ""),
                    *((each, "stop") for each in STEP),
                    ("closed", "done"),
                ],
                "hang": [
                    ("opened", ""),
                    *((each, "evidence") for each in STEP),
                    ("announced", ""),
                    *((each, "stop") for each in STEP),
                    ("closed", "done"),
                ],
            }
            assert {run: len(stack.commands(run)) for run in TRAININGS} == {
                **dict.fromkeys(TRAININGS, 1),
                "oom": 2,
                "network": 2,
            }
            running = {run for run, wrapper in wrappers.items() if wrapper.poll() is None}
            assert running == {"oom", "network", "hang", "healthy"}
            assert [stack.asked(run) for run in ("oom", "network", "healthy")] == [[]] * 3
            assert [stack.told(run) for run in ("oom", "network", "healthy")] == [set()] * 3
