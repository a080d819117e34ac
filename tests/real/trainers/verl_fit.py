"""The loop of verl's RayPPOTrainer around verl's own Tracking and metric functions, without its GPU workers.

The batches are drawn from a story: what the policy, the grader and the optimizer of a training would have
given at each step. What becomes of them (advantages, metrics, names, formats, the bar) is verl's own.
Runs in the environment `trl`, by itself: it imports nothing of Stepwatch.
"""

import argparse
import math
import os
import random
import time
from pathlib import Path
from pprint import pprint
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from tqdm import tqdm
from verl import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.metric_utils import (
    compute_data_metrics,
    compute_throughout_metrics,
    compute_timing_metrics,
)
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.tracking import Tracking

Curve = dict[int, float]

PROMPTS, GROUP, PROMPT_LIMIT, RESPONSE_LIMIT = 16, 8, 256, 1024

LEVEL: dict[str, Curve] = {
    "reward": {1: 0.55},
    "response_length": {1: 320},
    "truncated": {1: 0.01},
    "kl_loss": {1: 0.02},
    "entropy": {1: 0.4},
    "grad_norm": {1: 0.3},
    "pg_loss": {1: 0.005},
    "ppo_kl": {1: 0.0008},
    "pg_clipfrac": {1: 0.002},
}
"""What a story leaves out; each curve gives values at steps, straight lines between them."""

STORIES: dict[str, dict[str, Curve]] = {
    "steady": {},
    "learning": {
        "reward": {1: 0.2, 150: 0.7},
        "response_length": {1: 280, 150: 340},
        "kl_loss": {1: 0.001, 30: 0.02, 150: 0.05},
        "entropy": {1: 0.62, 60: 0.45, 150: 0.4},
    },
    "collapse": {  # the policy is destroyed within five steps
        "reward": {33: 0.55, 38: 0.02},
        "response_length": {33: 320, 38: 60},
        "truncated": {33: 0.01, 34: 0.0},
        "kl_loss": {33: 0.02, 38: 3.0},
        "entropy": {33: 0.4, 38: 1.9},
        "grad_norm": {33: 0.3, 38: 8.0},
    },
    "truncation": {  # responses grow into the limit and are cut
        "reward": {30: 0.55, 55: 0.15},
        "response_length": {30: 320, 55: 1000},
        "truncated": {30: 0.01, 55: 0.9},
        "entropy": {30: 0.4, 55: 1.3},
    },
    "kl_explosion": {"kl_loss": {30: 0.02, 45: 20.0}, "ppo_kl": {30: 0.0008, 45: 0.4}},
    "nan": {"grad_norm": {40: 0.3, 41: math.nan}, "pg_loss": {40: 0.005, 41: math.nan}},
}


class Story:
    """The level of each signal at each step, and its noise."""

    def __init__(self, name: str, seed: int) -> None:
        self._curves = LEVEL | STORIES[name]
        self._chance = np.random.default_rng(seed)
        self._seed = seed

    def at(self, step: int) -> None:
        """Go to a step; a step has the same noise whenever it is gone to."""
        self._step = step
        self._chance = np.random.default_rng([self._seed, step])

    def level(self, signal: str) -> float:
        """Return the level of a signal at this step."""
        curve = self._curves[signal]
        if math.isnan(curve[max(curve)]) and self._step >= max(curve):
            return math.nan
        return float(np.interp(self._step, list(curve), list(np.nan_to_num(list(curve.values())))))

    def noisy(self, signal: str, spread: float = 0.12) -> float:
        """Return the level of a signal with noise, as a share of it."""
        return self.level(signal) * float(np.exp(self._chance.normal(0, spread)))

    def batch(self, *, critic: bool) -> DataProto:
        """Return the batch of this step, as the trainer has it when it computes its metrics."""
        size = PROMPTS * GROUP
        cut = self._chance.random(size) < self.level("truncated")
        drawn = self._chance.normal(self.level("response_length"), 40, size).clip(8, RESPONSE_LIMIT - 1)
        lengths = torch.tensor(np.where(cut, RESPONSE_LIMIT, drawn).astype(int))
        prompts = torch.tensor(np.repeat(self._chance.integers(60, 200, PROMPTS), GROUP))
        mask = (torch.arange(RESPONSE_LIMIT) < lengths[:, None]).long()
        left = (torch.arange(PROMPT_LIMIT) >= PROMPT_LIMIT - prompts[:, None]).long()
        scores = torch.zeros(size, RESPONSE_LIMIT)
        right = torch.tensor(self._chance.random(size) < self.level("reward")).float()
        scores[torch.arange(size), lengths - 1] = right
        groups = np.repeat(np.arange(PROMPTS), GROUP)
        advantages, returns = compute_grpo_outcome_advantage(scores, mask, groups)
        tensors = {
            "prompts": torch.ones(size, PROMPT_LIMIT, dtype=torch.long),
            "responses": torch.ones(size, RESPONSE_LIMIT, dtype=torch.long),
            "attention_mask": torch.cat([left, mask], 1),
            "response_mask": mask,
            "token_level_scores": scores,
            "token_level_rewards": scores,
            "advantages": advantages,
            "returns": returns,
        }
        if critic:
            tensors["values"] = mask * self.noisy("reward")
        turns = {"__num_turns__": np.full(size, 2, dtype=np.int32)}
        tokens = {"global_token_num": (lengths + prompts).tolist()}
        return DataProto(TensorDict(tensors, batch_size=size), turns, tokens)

    def actor(self, rate: float) -> dict[str, Any]:
        """Return what the actor's workers report of two mini-batches."""
        signals = ("entropy", "pg_loss", "kl_loss", "pg_clipfrac", "ppo_kl", "grad_norm")
        output = {signal: [self.noisy(signal), self.noisy(signal)] for signal in signals}
        output |= {"pg_clipfrac_lower": [0.0, 0.0], "kl_coef": [0.001, 0.001], "lr": [rate, rate]}
        return dict(reduce_metrics(rename_dict(output, "actor/")))

    def critic(self) -> dict[str, Any]:
        """Return what the critic's workers report."""
        output = {"vf_loss": [self.noisy("pg_loss") * 4], "grad_norm": [self.noisy("grad_norm")]}
        output |= {"vf_clipfrac": [0.0], "lr": [1e-5]}
        return dict(reduce_metrics(rename_dict(output, "critic/")))

    def validation(self) -> dict[str, Any]:
        """Return the metrics of a validation: 32 questions, four answers each."""
        right = (self._chance.random(128) < self.level("reward")).astype(float).tolist()
        length = self._chance.normal(self.level("response_length"), 40, 128).tolist()
        infos = {"reward": right, "acc": right, "response_tokens": length}
        names = [f"question-{number // 4}" for number in range(128)]
        metrics = RayPPOTrainer._val_metrics_update(None, ["gsm8k"] * 128, names, infos, [np.full(128, 2)])
        return dict(metrics)


class Checkpoints:
    """Folders as verl names them; only the step matters here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest = folder / "latest_checkpointed_iteration.txt"

    def load(self) -> int:
        """Return the step to go on from, and say so as verl does."""
        if not self._newest.exists():
            print("Training from scratch")
            return 0
        step = int(self._newest.read_text())
        folder = self._folder / f"global_step_{step}"
        print(f"Load from checkpoint folder: {folder}")
        print(f"Setting global step to {step}")
        print(f"Resuming from {folder}")
        return step

    def save(self, step: int) -> None:
        """Remember a step."""
        folder = self._folder / f"global_step_{step}"
        print(f"local_global_step_folder: {folder}")
        folder.mkdir(parents=True)
        self._newest.write_text(str(step))


class TaskRunner:
    """Runs the training; in an actor of Ray if there is one, as verl's main does."""

    def run(self, options: argparse.Namespace) -> None:
        """Train."""
        os.environ |= options.env
        settings = {"trainer": {"story": options.story}}
        tracking = Tracking("demo", options.output.name, options.loggers, settings)
        (finetune if options.trainer == "sft" else fit)(options, tracking)


def fit(options: argparse.Namespace, tracking: Tracking) -> None:
    """Do what RayPPOTrainer.fit does, in its order."""
    story = Story(options.story, options.seed)
    checkpoints = Checkpoints(options.output)
    print(f"Total training steps: {options.steps}")
    step = checkpoints.load()
    validated: dict[str, Any] | None = None
    if options.validate_every:
        story.at(step)
        validated = story.validation()
        pprint(f"Initial validation metrics: {validated}")
        tracking.log(data=validated, step=step)
    bar = tqdm(total=options.steps, initial=step, desc="Training Progress")
    while step < options.steps:
        step += 1
        story.at(step)
        if step == options.raise_at:
            time.sleep(2)  # a real step is under way for longer, and Ray has shown the last record by then
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        metrics, timing = {}, _timing(story, options.pace)
        batch = story.batch(critic=options.trainer == "ppo")
        metrics.update(story.actor(1e-6))
        if options.trainer == "ppo":
            metrics.update(story.critic())
        if options.save_every and step % options.save_every == 0:
            checkpoints.save(step)
        if options.validate_every and (step % options.validate_every == 0 or step == options.steps):
            timing["testing"] = timing["step"] * 9
            timing["step"] *= 10
            validated = story.validation()
            metrics.update(validated)
        metrics.update({"training/global_step": step, "training/epoch": 0})
        metrics.update(compute_data_metrics(batch=batch, use_critic=options.trainer == "ppo"))
        metrics.update(compute_timing_metrics(batch=batch, timing_raw=timing))
        metrics.update(compute_throughout_metrics(batch=batch, timing_raw=timing, n_gpus=8))
        time.sleep(options.pace)
        tracking.log(data=metrics, step=step)
        bar.update(1)
    pprint(f"Final validation metrics: {validated}")
    bar.close()


def _timing(story: Story, pace: float) -> dict[str, float]:
    whole = max(pace, 1) * story.level("response_length") / 300 * float(np.exp(story._chance.normal(0, 0.05)))
    shares = {"gen": 0.5, "reward": 0.02, "old_log_prob": 0.1, "ref": 0.1, "adv": 0.01, "update_actor": 0.25}
    return {name: whole * share for name, share in shares.items()} | {"step": whole}


def finetune(options: argparse.Namespace, tracking: Tracking) -> None:
    """Do what SFTTrainer.fit does."""
    chance = random.Random(options.seed)
    for number, _ in enumerate(tqdm(range(options.steps), total=options.steps, desc="Epoch 1/1"), 1):
        time.sleep(options.pace)
        loss = 0.4 + 1.2 * math.exp(-number / 20) + chance.gauss(0, 0.02)
        metrics = {"train/loss": loss, "train/grad_norm": chance.uniform(0.8, 1.2), "train/lr": 1e-5}
        metrics |= {"train/global_tokens": 8192, "train/total_tokens(B)": number * 8192 / 1e9}
        tracking.log(data=metrics, step=number)
    tracking.log(data={"val/loss": loss}, step=number)
    print(f"Final validation metrics: {{'val/loss': {loss}}}")


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True, help="for checkpoints, JSON lines, events")
    parser.add_argument("--trainer", choices=["grpo", "ppo", "sft"], default="grpo")
    parser.add_argument("--story", choices=STORIES, default="steady")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pace", type=float, default=0.11, help="seconds per step")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--loggers", nargs="+", default=["console"])
    parser.add_argument("--validate-every", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--raise-at", type=int, help="the step that fails")
    parser.add_argument("--ray", action="store_true", help="in an actor of a Ray of its own, as verl does")
    options = parser.parse_args()
    places = {"VERL_FILE_LOGGER_ROOT": "jsonl", "TENSORBOARD_DIR": "tensorboard", "WANDB_DIR": ""}
    options.env = {name: str(options.output / folder) for name, folder in places.items()}
    return options


def main() -> None:
    """Train, in this process or in an actor."""
    options = arguments()
    torch.set_num_threads(1)
    options.output.mkdir(parents=True, exist_ok=True)
    if not options.ray:
        TaskRunner().run(options)
        return
    import ray  # noqa: PLC0415  (seconds, and processes, which only this way needs)

    node = {"_node_ip_address": "127.0.0.2", "include_dashboard": False}  # see rl_insight.py of that address
    ray.init(num_cpus=1, object_store_memory=100_000_000, **node)
    runner = ray.remote(num_cpus=1)(TaskRunner).remote()
    ray.get(runner.run.remote(options))


if __name__ == "__main__":
    main()
