"""A batch under the keys that verl logs (PPO with a critic and a KL loss, as of verl 0.8)."""

from __future__ import annotations

from random import Random

from demo.batch import SAMPLES, Batch
from demo.scenario import RESPONSE_LIMIT, Level

Values = dict[str, float]

GPUS = 8
STEPS_PER_EPOCH = 120
PROMPT_LIMIT = 256
KL_COEFFICIENT = 0.001

SHARES = {
    "gen": 0.52,
    "reward": 0.01,
    "old_log_prob": 0.07,
    "ref": 0.06,
    "values": 0.05,
    "adv": 0.01,
    "update_critic": 0.09,
    "update_actor": 0.17,
    "update_weights": 0.02,
}
"""Phases of a step, and what each takes of its time."""


def validation(score: float) -> Values:
    """What a validation on an easy and a hard data set logs; ``score`` is the share of right answers."""
    apart = 0.4 * score * (1 - score)
    sets = {"easy": _short(score + apart), "hard": _short(score - apart)}
    return {
        **{f"val-core/simulated/{name}/reward/mean@1": share for name, share in sets.items()},
        **{f"val-aux/simulated/{name}/score/mean@1": share for name, share in sets.items()},
        "val-aux/num_turns/mean": 2.0,
    }


def training(step: int, level: Level, batch: Batch, seconds: float, rng: Random) -> Values:
    """What a training step of so many seconds logs, not counting those for which it waits for the judge."""
    took = seconds * rng.gauss(1, 0.02)
    waited = level.waits * took
    values = {
        **_sequences(batch),
        **_actor(batch, rng),
        **_critic(batch, rng),
        **_rewards(batch, rng),
        **_lengths(batch),
        **_components(step, level, batch),
        **_times(batch, took, waited),
        **_machine(step, batch, took + waited),
        "training/global_step": step,
        "training/epoch": step // STEPS_PER_EPOCH,
    }
    return {key: _short(value) for key, value in values.items()}


def _sequences(batch: Batch) -> Values:
    mean = batch.tokens / GPUS
    return {
        "global_seqlen/min": round(0.93 * mean),
        "global_seqlen/max": round(1.08 * mean),
        "global_seqlen/minmax_diff": round(0.15 * mean),
        "global_seqlen/balanced_min": round(0.998 * mean),
        "global_seqlen/balanced_max": round(1.002 * mean),
        "global_seqlen/mean": mean,
    }


def _actor(batch: Batch, rng: Random) -> Values:
    # The further from the reference, the larger each update.
    moved = (0.0004 + 0.003 * batch.kl) * rng.lognormvariate(0, 0.3)
    loss = rng.gauss(0, 0.01)
    mismatch = 0.001 * rng.lognormvariate(0, 0.2)
    return {
        "rollout_corr/kl": mismatch,
        "rollout_corr/rollout_is_eff_sample_size": 1 - 20 * mismatch,
        "training/rollout_probs_diff_mean": 3 * mismatch,
        "training/rollout_actor_probs_pearson_corr": 1 - mismatch,
        "actor/entropy": batch.entropy,
        "actor/kl_loss": batch.kl,
        "actor/kl_coef": KL_COEFFICIENT,
        "actor/pg_loss": loss,
        "actor/loss": loss + KL_COEFFICIENT * batch.kl,
        "actor/pg_clipfrac": 4 * moved,
        "actor/pg_clipfrac_lower": 0.0,
        "actor/ppo_kl": moved,
        "actor/grad_norm": batch.gradient,
        "actor/lr": 1e-06,
    }


def _critic(batch: Batch, rng: Random) -> Values:
    variance = batch.score * (1 - batch.score)
    unexplained = min(1.0, rng.lognormvariate(-0.7, 0.1))
    return {
        "critic/vf_loss": 0.5 * variance * unexplained,
        "critic/vf_clipfrac": rng.uniform(0, 0.01),
        "critic/vpred_mean": batch.score + rng.gauss(0, 0.01),
        "critic/vf_explained_var": 1 - unexplained,
        "critic/grad_norm": rng.lognormvariate(1.5, 0.15),
        "critic/lr": 1e-05,
        "critic/values/mean": batch.score + rng.gauss(0, 0.01),
        "critic/values/max": 1.1,
        "critic/values/min": -0.2,
    }


def _rewards(batch: Batch, rng: Random) -> Values:
    best, worst = float(batch.score > 0), float(batch.score == 1)
    return {
        "critic/score/mean": batch.score,
        "critic/score/max": best,
        "critic/score/min": worst,
        "critic/rewards/mean": batch.score,
        "critic/rewards/max": best,
        "critic/rewards/min": worst,
        "critic/advantages/mean": rng.gauss(0, 0.001),
        "critic/advantages/max": rng.uniform(2, 4),
        "critic/advantages/min": -rng.uniform(2, 4),
        "critic/returns/mean": batch.score,
        "critic/returns/max": best,
        "critic/returns/min": worst,
    }


def _components(step: int, level: Level, batch: Batch) -> Values:
    # Dice of their own: the others' order is the same with and without components.
    noise = Random(step).gauss(1, 0.03)  # noqa: S311 - a simulation, no secret
    return {"gdpo/accuracy/mean": batch.score, "gdpo/judge/mean": level.judge * noise}


def _lengths(batch: Batch) -> Values:
    return {
        "response_length/mean": batch.length,
        "response_length/max": batch.longest,
        "response_length/min": round(0.2 * batch.length),
        "response_length/clip_ratio": batch.cut,
        "response/aborted_ratio": 0.0,
        "prompt_length/mean": batch.prompt,
        "prompt_length/max": round(2 * batch.prompt),
        "prompt_length/min": round(0.5 * batch.prompt),
        "prompt_length/clip_ratio": 0.0,
        "num_turns/mean": 2.0,
        "num_turns/max": 2,
        "num_turns/min": 2,
    }


def _times(batch: Batch, took: float, waited: float) -> Values:
    seconds = {phase: share * took for phase, share in SHARES.items()}
    seconds["reward"] += waited
    tokens = {**dict.fromkeys(SHARES, batch.tokens), "gen": SAMPLES * batch.length}
    return {
        **{f"timing_s/{phase}": value for phase, value in seconds.items()},
        "timing_s/step": took + waited,
        **{
            f"timing_per_token_ms/{phase}": 1000 * seconds[phase] / tokens[phase]
            for phase in ("gen", "ref", "values", "adv", "update_critic", "update_actor")
        },
    }


def _machine(step: int, batch: Batch, took: float) -> Values:
    # Peaks only grow: a longer batch than any before comes ever more rarely.
    grown = 1 - 1 / (1 + step / 50)
    return {
        "perf/total_num_tokens": batch.tokens,
        "perf/time_per_step": took,
        "perf/throughput": batch.tokens / took / GPUS,
        "perf/mfu/actor": 0.38 * batch.tokens / (SAMPLES * RESPONSE_LIMIT / 2),
        "perf/mfu/critic": 0.35 * batch.tokens / (SAMPLES * RESPONSE_LIMIT / 2),
        "actor/perf/max_memory_allocated_gb": 44 + 6 * grown,
        "actor/perf/max_memory_reserved_gb": 50 + 8 * grown,
        "actor/perf/cpu_memory_used_gb": 120 + 4 * grown,
    }


def _short(value: float) -> float:
    """Six digits: no one reads more, and an hour of them is a file."""
    return value if isinstance(value, int) else float(f"{value:.6g}")
