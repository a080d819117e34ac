"""Logs as trainers write them, of any size: verl's with 90 keys a step, TRL's, and tables of them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import orjson

SIGNALS = (
    "critic/score/mean", "critic/score/max", "critic/score/min", "actor/kl_loss", "actor/ppo_kl",
    "actor/entropy", "actor/pg_loss", "actor/grad_norm", "response_length/mean", "response_length/max",
    "response_length/clip_ratio", "perf/time_per_step", "perf/throughput", "perf/total_num_tokens",
    "timing_s/gen", "timing_s/update_actor", "perf/mfu/actor", "perf/max_memory_allocated_gb",
)  # fmt: skip
OTHERS = tuple(f"val-aux/dataset_{number % 6}/score/best@{number}/mean" for number in range(72))

TRL_KEYS = (
    "loss", "grad_norm", "learning_rate", "completions/mean_length", "completions/min_length",
    "completions/max_length", "completions/clipped_ratio", "completions/mean_terminated_length",
    "rewards/format_reward/mean", "rewards/format_reward/std", "rewards/accuracy_reward/mean",
    "rewards/accuracy_reward/std", "reward", "reward_std", "frac_reward_zero_std", "kl", "entropy",
    "clip_ratio/low_mean", "clip_ratio/low_min", "clip_ratio/high_mean", "clip_ratio/high_max",
    "clip_ratio/region_mean",
)  # fmt: skip
TRL_STEPS = 10_000_000


def values(step: int, dice: random.Random) -> dict[str, float]:
    """One step of a run that learns slowly."""
    signals = {key: dice.gauss(1.0, 0.05) for key in SIGNALS}
    signals["critic/score/mean"] += step * 1e-5
    signals["response_length/clip_ratio"] = dice.gauss(0.05, 0.01)
    return {**signals, **{key: dice.random() for key in OTHERS}, "training/global_step": step}


def verl_jsonl(step: int, dice: random.Random) -> bytes:
    """A step as verl's ``file`` logger writes it."""
    return orjson.dumps({"step": step, "data": values(step, dice)}) + b"\n"


def verl_console(step: int, dice: random.Random) -> bytes:
    """A step as verl's ``console`` logger prints it through Ray, with two lines of chatter."""
    fields = " - ".join(f"{key}:{value!r}" for key, value in values(step, dice).items())
    chatter = b"(WorkerDict pid=2) INFO: weights synced, KV cache released, engine asleep\n" * 2
    return f"(TaskRunner pid=1) step:{step} - {fields}\n".encode() + chatter


def trl_console(step: int, dice: random.Random) -> bytes:
    """A step as TRL prints it, behind a progress bar that redraws itself."""
    logged = {**{key: dice.gauss(1.0, 0.05) for key in TRL_KEYS}, "epoch": step / TRL_STEPS}
    bar = f"\r  0%|          | {step}/{TRL_STEPS} [00:10<99:00:00,  1.02s/it]"
    return f"{bar}\n{logged}\n".encode()


def csv(step: int, dice: random.Random) -> bytes:
    """A step as a row of a table, with the header above the first."""
    logged = values(step, dice)
    rows = ([*logged, "step"], [*map(repr, logged.values()), str(step)])
    return "".join(f"{','.join(row)}\n" for row in rows[step > 1 :]).encode()


def flat_jsonl(step: int, dice: random.Random) -> bytes:
    """A step as a home-made loop writes it."""
    return orjson.dumps({"step": step, **values(step, dice)}) + b"\n"


FORMS = {form.__name__: form for form in (verl_jsonl, verl_console, trl_console, csv, flat_jsonl)}


def lines(form: str, seed: int = 1) -> Iterator[bytes]:
    """Steps without end."""
    dice = random.Random(seed)
    for step in count(1):
        yield FORMS[form](step, dice)


def write(path: Path, form: str, size: int) -> int:
    """Write a log of this many bytes. Returns the number of steps."""
    with path.open("wb") as file:
        for steps, line in enumerate(lines(form), 1):
            file.write(line)
            if file.tell() >= size:
                return steps
    raise AssertionError("steps never end")


class Log:
    """A log of verl's JSON lines, and the steps to come."""

    def __init__(self, path: Path, seed: int, steps: int) -> None:
        self.path, self.lines = path, lines("verl_jsonl", seed)
        with path.open("wb") as file:
            file.writelines(islice(self.lines, steps))

    def step(self) -> None:
        with self.path.open("ab") as file:
            file.write(next(self.lines))


def runs(folder: Path, number: int, steps: int = 300) -> list[Log]:
    """The logs of the runs ``run-0``, ``run-1``, ..."""
    return [Log(folder / f"run-{seed}.jsonl", seed, steps) for seed in range(number)]


def files(folder: Path, total: int, name: str, content: bytes, old: float = 1) -> None:
    """Files in 20 folders; this share of them is of last month."""
    month_ago = time.time() - 30 * 24 * 3600
    for number in range(total):
        path = folder / f"project-{number % 20}" / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if number < total * old:
            os.utime(path, (month_ago, month_ago))
