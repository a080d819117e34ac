"""Five trainers have their faults at once, one is healthy: what was configured happens once, and no more."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.bridge import verl
from tests.bridge.acting import Acting
from tests.real.waiting import let_pass

pytestmark = pytest.mark.e2e

SETTINGS = {
    "retry": [
        {
            "name": "night",
            "rules": [
                {"failures": ["cuda_oom"], "replace": {"data.train_batch_size=*": "/2"}},
                {"failures": ["network", "nccl_timeout"]},
            ],
            "interval": "1s",
        }
    ],
    "actions": {
        "dry_run": False,
        "veto": "3s",
        "policies": [
            {"on": "KLExplosion", "for": "1s", "do": ["evidence", "notify", "stop"]},
            {"on": "Stalled", "for": "1s", "do": ["evidence", "notify"]},
        ],
    },
}
STEP = ("intent", "result")


def test_what_was_configured_for_each_fault_happens_once_and_nothing_else_does(tmp_path: Path) -> None:
    with Acting(tmp_path, **SETTINGS) as stack:
        wrappers = {
            fault: stack.train(
                fault,
                *(sys.executable, "-m", "tests.bridge.verl", fault, "actor_rollout_ref.actor.optim.lr=1e-6"),
                *("data.train_batch_size=512", f"trainer.default_local_dir={tmp_path / 'ckpt' / fault}"),
                options=("--retry", "night"),
            )
            for fault in verl.FAULTS
        }
        stack.wait_step("killed", verl.AT)
        os.kill(stack.trainer(wrappers["killed"], "killed"), signal.SIGKILL)
        stack.wait_until(lambda: stack.closed("explode") and stack.closed("hang"), 400)
        stack.wait_until(lambda: stack.told("killed") and wrappers["explode"].poll() is not None)
        for run in ("oom", "network", "healthy"):
            stack.wait_step(run, 2 * verl.CALM)
        let_pass(10, stack.evaluations)

        print({run: sorted(stack.sent(run)) for run in verl.FAULTS})
        retried = stack.commands("oom")
        assert [word for each in retried for word in each if "batch" in word] == [
            "data.train_batch_size=512",
            "data.train_batch_size=256",
        ]
        assert stack.ends("oom") == ["CUDA out of memory"]
        assert stack.ends("network") == ["network error"]
        first, second = stack.commands("network")
        assert (set(second) - set(first), set(first) - set(second)) == ({"trainer.resume_mode=auto"}, set())
        for run in ("oom", "network"):
            assert stack.log_of(run).count("Setting global step to 10") == 1

        assert stack.ends("killed") == ["SIGKILL"]
        assert "no retry: policy night has no rule for: SIGKILL" in stack.log_of("killed")
        assert stack.told("killed") == {"RunFailed"}

        assert wrappers["explode"].returncode == -signal.SIGTERM
        assert stack.asked("explode") == ["stop"]
        assert "no retry: policy night has no rule for: stopped by stepwatch" in stack.log_of("explode")
        (explosion,) = stack.known("explode")
        (hang,) = stack.known("hang")
        for action in (explosion, hang):
            assert Path(action["results"]["evidence"]).is_file()

        assert stack.audit() == {
            "explode": [
                ("opened", ""),
                ("announced", ""),
                *((each, "evidence") for each in STEP),
                *((each, "stop") for each in STEP),
                ("closed", "done"),
            ],
            "hang": [("opened", ""), *((each, "evidence") for each in STEP), ("closed", "done")],
        }
        assert {run: len(stack.commands(run)) for run in verl.FAULTS} == {
            **dict.fromkeys(verl.FAULTS, 1),
            "oom": 2,
            "network": 2,
        }
        running = {run for run, wrapper in wrappers.items() if wrapper.poll() is None}
        assert running == {"oom", "network", "hang", "healthy"}
        assert [stack.asked(run) for run in running] == [[]] * 4
        assert stack.told("explode") >= {"KLExplosion", "ActionPending", "ActionTaken"}
        assert stack.told("hang") == {"Stalled", "ActionTaken"}
        assert [stack.told(run) for run in ("oom", "network", "healthy")] == [set()] * 3
