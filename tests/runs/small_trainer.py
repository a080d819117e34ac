"""Stand in for a trainer on a console: the real tqdm, with records as TRL and verl print them.

``python -m tests.runs.small_trainer trl|verl [--steps 1000] [--interval 0.05] [--child]``

Records go to standard output, as bars do to standard error. The output is flushed as a trainer's is when
it has no buffer, so that no record is lost with the process.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time

from tqdm import tqdm

OWN = random.Random(os.getpid()).uniform(0.9, 1.1)
"""Logs with equal numbers would be taken for one run."""


def measured(step: int) -> dict[str, float]:
    """What a healthy trainer measures, with a reward that rises."""
    found = {"reward": 0.3 + step / 1000 + step % 7 / 100, "kl": 0.01 + step % 5 / 1000}
    return {name: OWN * value for name, value in {**found, "grad_norm": 1.0 + step % 4 / 10}.items()}


def trl(steps: int, interval: float) -> None:
    """As transformers' ProgressCallback: the bar is cleared for each record, and drawn again."""
    with tqdm(total=steps, dynamic_ncols=True, mininterval=0) as bar:
        for step in range(1, steps + 1):
            time.sleep(interval)
            bar.update(1)
            record = {name: f"{value:.4g}" for name, value in measured(step).items()}
            tqdm.write(str({**record, "epoch": f"{step / steps:.4g}"}))
            sys.stdout.flush()
        tqdm.write(str({"train_runtime": "1.0", "train_loss": "0.1", "epoch": "1"}))


def verl(steps: int, interval: float) -> None:
    """As verl's trainer: the console logger prints, then the bar moves on."""
    print(f"Total training steps: {steps}", flush=True)
    with tqdm(total=steps, desc="Training Progress", mininterval=0) as bar:
        for step in range(1, steps + 1):
            time.sleep(interval)
            found = measured(step)
            values = {"critic/score/mean": found["reward"], "actor/grad_norm": found["grad_norm"]}
            fields = [f"step:{step}", *(f"{key}:{value}" for key, value in values.items())]
            print(" - ".join(fields), flush=True)
            bar.update(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", choices=("trl", "verl"))
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--interval", type=float, default=0.05)
    parser.add_argument("--child", action="store_true", help="start a worker that outlives the trainer")
    given = parser.parse_args()
    if given.child:
        worker = subprocess.Popen(["sleep", "1000"])
        print(f"worker {worker.pid}", flush=True)
    {"trl": trl, "verl": verl}[given.trainer](given.steps, given.interval)


if __name__ == "__main__":
    main()
