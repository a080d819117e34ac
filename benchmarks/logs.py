"""Logs like verl's, of any size: 90 keys a step, as its ``file`` and its ``console`` logger write them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import orjson

SIGNALS = (
    "critic/score/mean", "critic/score/max", "critic/score/min", "actor/kl_loss", "actor/ppo_kl",
    "actor/entropy", "actor/pg_loss", "actor/grad_norm", "response_length/mean", "response_length/max",
    "response_length/clip_ratio", "perf/time_per_step", "perf/throughput", "perf/total_num_tokens",
    "timing_s/gen", "timing_s/update_actor", "perf/mfu/actor", "perf/max_memory_allocated_gb",
)  # fmt: skip
OTHERS = tuple(f"val-aux/dataset_{number % 6}/score/best@{number}/mean" for number in range(72))


def values(step: int, dice: random.Random) -> dict[str, float]:
    """One step of a run that learns slowly."""
    signals = {key: dice.gauss(1.0, 0.05) for key in SIGNALS}
    signals["critic/score/mean"] += step * 1e-5
    return {**signals, **{key: dice.random() for key in OTHERS}, "training/global_step": step}


def jsonl(step: int, logged: dict[str, float]) -> bytes:
    """The step as verl's ``file`` logger writes it."""
    return orjson.dumps({"step": step, "data": logged}) + b"\n"


def console(step: int, logged: dict[str, float]) -> bytes:
    """The step as verl's ``console`` logger prints it through Ray, with two lines of chatter."""
    fields = " - ".join(f"{key}:{value!r}" for key, value in logged.items())
    chatter = b"(WorkerDict pid=2) INFO: weights synced, KV cache released, engine asleep\n" * 2
    return f"(TaskRunner pid=1) step:{step} - {fields}\n".encode() + chatter


FORMS = {"jsonl": jsonl, "log": console}


def lines(form: str, seed: int = 1) -> Iterator[bytes]:
    """Steps without end."""
    dice = random.Random(seed)
    step = 0
    while True:
        step += 1
        yield FORMS[form](step, values(step, dice))


def write(path: Path, size: int) -> int:
    """Write a log of this many bytes; its suffix chooses the form. Returns the number of steps."""
    written = steps = 0
    with path.open("wb") as file:
        for line in lines(path.suffix[1:]):
            written += file.write(line)
            steps += 1
            if written >= size:
                return steps
    return steps
