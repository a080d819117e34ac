"""Signals: which key of which framework carries what, in order of preference, in base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.runs.contract import ZERO_MEANS_NOT_MEASURED
from exporter.runs.numbers import number

GIB = 1024.0**3


@dataclass(frozen=True, slots=True)
class Key:
    """A trainer's key; its value times ``scale``, divided by the first of ``per`` that is logged."""

    name: str
    scale: float = 1.0
    per: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signal:
    """A canonical signal. ``verl`` and ``scoped`` are its keys in those logs, best first."""

    name: str
    help: str
    verl: tuple[str | Key, ...] = ()
    scoped: tuple[str | Key, ...] = ()


STEP_TIME = ("perf/time_per_step", "timing_s/step", "timing/step")

SIGNALS: tuple[Signal, ...] = (
    Signal(
        "reward",
        "Mean score of the batch, before any KL penalty where the trainer logs that.",
        verl=("critic/score/mean", "critic/rewards/mean"),
        scoped=("reward_mean",),
    ),
    Signal(
        "reward_max",
        "Largest score of the batch.",
        verl=("critic/score/max", "critic/rewards/max"),
        scoped=("reward_max",),
    ),
    Signal(
        "reward_min",
        "Smallest score of the batch.",
        verl=("critic/score/min", "critic/rewards/min"),
        scoped=("reward_min",),
    ),
    Signal("reward_std", "Standard deviation of the reward over the batch.", scoped=("reward_std",)),
    Signal(
        "zero_std_ratio",
        "Share of prompt groups whose rewards are all equal.",
        scoped=("frac_reward_zero_std", "zero_std_ratio"),
    ),
    Signal(
        "kl",
        "KL divergence to the reference model in nats per token.",
        verl=("actor/kl_loss", "actor/reward_kl_penalty", "critic/kl"),
        scoped=("kl_div", "kl_divergence", "kl"),
    ),
    Signal(
        "policy_kl",
        "KL divergence between the policy before and after the update in nats per token.",
        verl=("actor/ppo_kl",),
        scoped=("ppo_kl", "approx_kl"),
    ),
    Signal(
        "entropy",
        "Entropy of the policy in nats per token.",
        verl=("actor/entropy", "actor/entropy_loss"),
        scoped=("entropy",),
    ),
    Signal(
        "policy_loss", "Loss of the policy.", verl=("actor/pg_loss",), scoped=("policy_loss", "actor_loss")
    ),
    Signal(
        "value_loss", "Loss of the critic.", verl=("critic/vf_loss",), scoped=("value_loss", "critic_loss")
    ),
    Signal(
        "grad_norm",
        "Norm of the policy's gradient before clipping.",
        verl=("actor/grad_norm",),
        scoped=("grad_norm", "actor_grad_norm"),
    ),
    Signal(
        "critic_grad_norm",
        "Norm of the critic's gradient before clipping.",
        verl=("critic/grad_norm",),
        scoped=("critic_grad_norm",),
    ),
    Signal(
        "policy_clip_ratio",
        "Share of tokens whose probability ratio was clipped.",
        verl=("actor/pg_clipfrac",),
        scoped=("clip_fraction", "clip_frac"),
    ),
    Signal(
        "response_length",
        "Mean response length in tokens.",
        verl=("response_length/mean",),
        scoped=("response_length", "response_length_mean", "mean_length"),
    ),
    Signal(
        "response_length_max",
        "Longest response of the batch in tokens.",
        verl=("response_length/max",),
        scoped=("response_length_max",),
    ),
    Signal(
        "truncated_ratio",
        "Share of responses cut at the length limit.",
        verl=("response_length/clip_ratio",),
        scoped=("truncated_ratio", "clip_ratio"),
    ),
    Signal(
        "learning_rate", "Learning rate of the policy.", verl=("actor/lr",), scoped=("learning_rate", "lr")
    ),
    Signal(
        "step_seconds",
        "Time of the step as the trainer measured it.",
        verl=STEP_TIME,
        scoped=("step_seconds", "step_time", "time_per_step"),
    ),
    Signal(
        "rollout_seconds",
        "Time the step spent on generation.",
        verl=("timing_s/gen", "timing/gen"),
        scoped=("rollout_seconds", "rollout_latency_seconds", "rollout_time"),
    ),
    Signal(
        "update_actor_seconds",
        "Time the step spent on updating the policy.",
        verl=("timing_s/update_actor", "timing/update_actor"),
        scoped=("update_actor_seconds",),
    ),
    Signal(
        "tokens_per_second",
        "Prompt and response tokens of the step per second, over all GPUs.",
        verl=(Key("perf/total_num_tokens", per=STEP_TIME),),
        scoped=("tokens_per_second", "throughput"),
    ),
    Signal(
        "tokens_per_second_per_gpu",
        "Prompt and response tokens of the step per second and GPU.",
        verl=("perf/throughput",),
        scoped=("tokens_per_second_per_gpu",),
    ),
    Signal(
        "mfu_ratio",
        "Model FLOPs utilisation of the policy update.",
        verl=("perf/mfu/actor",),
        scoped=("mfu",),
    ),
    Signal(
        "gpu_memory_allocated_bytes",
        "Largest GPU memory allocated by the trainer's framework so far.",
        verl=(Key("actor/perf/max_memory_allocated_gb", GIB), Key("perf/max_memory_allocated_gb", GIB)),
        scoped=("gpu_memory_allocated_bytes",),
    ),
    Signal(
        "gpu_memory_reserved_bytes",
        "Largest GPU memory reserved by the trainer's framework so far.",
        verl=(Key("actor/perf/max_memory_reserved_gb", GIB), Key("perf/max_memory_reserved_gb", GIB)),
        scoped=("gpu_memory_reserved_bytes",),
    ),
    Signal(
        "host_memory_used_bytes",
        "Host memory in use.",
        verl=(Key("actor/perf/cpu_memory_used_gb", GIB), Key("perf/cpu_memory_used_gb", GIB)),
        scoped=("host_memory_used_bytes",),
    ),
)

NAMES = tuple(signal.name for signal in SIGNALS)

Table = tuple[tuple[str, tuple[Key, ...]], ...]


def table(framework: str) -> Table:
    """The signals of one framework (``verl`` or ``scoped``) with their keys, best first."""
    return tuple((signal.name, keys) for signal in SIGNALS if (keys := _keys(signal, framework)))


def _keys(signal: Signal, framework: str) -> tuple[Key, ...]:
    named: tuple[str | Key, ...] = getattr(signal, framework)
    return tuple(Key(key) if isinstance(key, str) else key for key in named)


def extract(values: Mapping[str, Any], wanted: Table) -> dict[str, float]:
    """Read the signals that a record holds. A signal that was not logged is absent, never 0."""
    found: dict[str, float] = {}
    for signal, keys in wanted:
        for key in keys:
            if key.name in values:
                value = number(values[key.name]) if not key.per else _rate(values, key)
                if value is None:
                    continue
                found[signal] = value * key.scale
                if value or signal not in ZERO_MEANS_NOT_MEASURED:
                    break
    return found


def _rate(values: Mapping[str, Any], key: Key) -> float | None:
    amount = number(values[key.name])
    seconds = next((number(values[name]) for name in key.per if name in values), None)
    return amount / seconds if amount is not None and seconds else None


V1_KEYS = ("training/num_turns/mean", "training/off_policy/trajectory_staleness/mean")
"""Keys that only verl's v1 trainer (0.9) logs."""


def drop_batch_relative_truncation(
    found: dict[str, float], values: Mapping[str, Any], limit: int | None
) -> None:
    """Mend what verl 0.9's v1 trainer calls ``response_length/clip_ratio``.

    It is the share of responses as long as the longest of the batch: never 0. It is the truncated
    share only if the longest response reached the configured ``limit`` in tokens; below the limit
    nothing was truncated, and without a known limit nothing can be said.
    """
    if "truncated_ratio" not in found or not any(key in values for key in V1_KEYS):
        return
    if limit is None:
        del found["truncated_ratio"]
    elif found.get("response_length_max", limit) < limit:
        found["truncated_ratio"] = 0.0
