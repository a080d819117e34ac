"""rlwatch, the nearest rival, with its own defaults on the same records."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from stepwatch.backtest.replay import START, Prometheus, Replayed
from tests.judge.score import Alarm
from tests.real import environments

SCRIPT = Path(__file__).with_name("rlwatch_steps.py")

SIGNALS = {
    "entropy": ("rl_entropy",),
    "kl_divergence": ("rl_kl",),
    "reward_mean": ("rl_reward",),
    "reward_std": ("rl_reward_std",),
    "loss": ("rl_loss", "rl_policy_loss"),
    "grad_norm": ("rl_grad_norm",),
}
"""What it calls each signal, and ours, the first first."""

METRICS = frozenset(name for names in SIGNALS.values() for name in names)


def alarms(prometheus: Prometheus, runs: Iterable[Replayed]) -> dict[str, tuple[Alarm, ...]]:
    """What it sends for each run; a record is a step."""
    runs = list(runs)
    last = START + max(len(run.steps) for run in runs)
    values = {
        name: prometheus.over(" or ".join(f"max by (run) ({metric})" for metric in metrics), START, last)
        for name, metrics in SIGNALS.items()
    }
    steps = {
        run.run: [
            {name: found.get(run.run, {}).get(START + record) for name, found in values.items()}
            for record in range(1, len(run.steps) + 1)
        ]
        for run in runs
    }
    sent = _sent(steps)
    return {
        run: tuple(Alarm(name, severity, "", record) for record, name, severity in sent[run]) for run in sent
    }


def _sent(steps: dict[str, list[dict[str, float | None]]]) -> dict[str, list[tuple[int, str, str]]]:
    python = environments.programs("rlwatch") / "python"
    command = [python, "-I", SCRIPT]
    done = subprocess.run(command, input=json.dumps(steps), capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
