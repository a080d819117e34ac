"""TRL's GRPOTrainer on a tiny model with random weights, made here: a training of seconds, on a CPU, offline.

Runs in the environment `trl`, by itself: it imports nothing of Stepwatch.
"""

import argparse
import math
import os
import random
import socket
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

LENGTH = 32
"""Tokens that a completion has at most, which are characters."""

Reward = Callable[..., list[float]]


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of single characters."""
    words = ["<pad>", "<eos>", "<unk>", *string.ascii_lowercase, *string.digits, *" +-="]
    whole = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
    whole.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    whole.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=whole, **special)


def model(folder: Path, words: PreTrainedTokenizerFast) -> str:
    """Return the folder of a language model with two layers and random weights, made there."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    tokens = {"vocab_size": len(words), "pad_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 128}
    Qwen2ForCausalLM(Qwen2Config(**shape, **heads, **tokens)).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def _digits(text: str) -> float:
    return sum(character in string.digits for character in text) / max(len(text), 1)


def rising(completions: list[str], **_: Any) -> list[float]:
    """Reward digits, and an end: a tiny model learns both within some dozens of steps."""
    return [0.8 * _digits(text) + 0.2 * (len(text) < LENGTH) for text in completions]


def constant(completions: list[str], **_: Any) -> list[float]:
    """Reward everything alike: there is nothing to learn."""
    return [1.0 for _ in completions]


def noisy(completions: list[str], **_: Any) -> list[float]:
    """Reward by chance: the reward stays where it is, with noise."""
    return [min(max(random.gauss(0.6, 0.15), 0), 1) for _ in completions]


def nothing(completions: list[str], **_: Any) -> list[float]:
    """Reward nothing, as a grader does that has lost its answers."""
    return [0.0 for _ in completions]


def failing(completions: list[str], **_: Any) -> list[float]:
    """Fail, as a grader does that cannot be reached."""
    raise ConnectionError("the reward server refused the connection")


def greedy(completions: list[str], **_: Any) -> list[float]:
    """Take more memory than there is, for more than four completions at once."""
    if len(completions) > 4:
        torch.empty(2**60, dtype=torch.uint8)
    return rising(completions)


def served(completions: list[str], **_: Any) -> list[float]:
    """Ask a reward server first, which may be away."""
    socket.create_connection(("127.0.0.1", int(os.environ["REWARD_PORT"]))).close()
    return rising(completions)


def hanging(completions: list[str], **_: Any) -> list[float]:
    """Wait for what never comes."""
    while completions:
        time.sleep(3600)
    return []


REWARDS: dict[str, Reward] = {
    "rising": rising,
    "constant": constant,
    "noisy": noisy,
    "nothing": nothing,
    "failing": failing,
    "greedy": greedy,
    "served": served,
    "hanging": hanging,
}


def reward(name: str, later: str | None, at: int) -> Reward:
    """Return the reward of a name, with another one in its place after so many steps."""
    first, second = REWARDS[name], REWARDS[later or name]

    def graded(completions: list[str], trainer_state: Any, **more: Any) -> list[float]:
        return (second if trainer_state.global_step >= at else first)(completions, **more)

    return graded


class Trainer(GRPOTrainer):
    """The trainer, with a loss that is not a number at some steps."""

    broken: frozenset[int] = frozenset()

    def compute_loss(self, *of: Any, **more: Any) -> Any:
        """Return the loss of a batch."""
        loss = super().compute_loss(*of, **more)
        return loss * math.nan if self.state.global_step + 1 in self.broken else loss


class Skip(TrainerCallback):
    """Leaves out an update whose gradient is not finite, as loss scaling does."""

    def on_pre_optimizer_step(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        """Look at the gradients, whose norm is measured by now."""
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if not all(gradient.isfinite().all() for gradient in gradients):
            model.zero_grad(set_to_none=True)


class Pace(TrainerCallback):
    """Takes so many seconds longer for a step."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Wait."""
        time.sleep(self._seconds)


class Explode(TrainerCallback):
    """Multiplies the learning rate after so many steps, by far too much."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_step_begin(
        self, _: Any, state: Any, *__: Any, optimizer: torch.optim.Optimizer, **___: Any
    ) -> None:
        """Do it."""
        if self._after and state.global_step >= self._after:
            for group in optimizer.param_groups:
                group["lr"] = 2.0


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--output", "--output_dir", type=Path, required=True, help="for checkpoints, events, W&B"
    )
    parser.add_argument("--batch", type=int, default=8, help="completions at once, which are one group")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--reward", choices=REWARDS, default="rising")
    parser.add_argument("--later-reward", choices=REWARDS, help="in its place after --later steps")
    parser.add_argument("--later", type=int, default=0)
    parser.add_argument("--nan-at", type=int, nargs="*", default=[], help="steps whose loss is not a number")
    parser.add_argument("--logging-steps", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that each step takes longer")
    parser.add_argument("--save-steps", type=int, default=0)
    parser.add_argument("--save-total-limit", type=int, help="how many checkpoints stay")
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint")
    parser.add_argument("--resume_from_checkpoint", help="from this one")
    parser.add_argument("--explode-after", type=int, default=0, help="the step with too high a learning rate")
    parser.add_argument("--enable_jit_checkpoint", action="store_true", help="save on SIGTERM, and end")
    parser.add_argument("--report-to", nargs="*", default=[], choices=["tensorboard", "wandb"])
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def trainer(options: argparse.Namespace) -> GRPOTrainer:
    """Return the trainer that these options describe."""
    os.environ |= {
        "TENSORBOARD_LOGGING_DIR": str(options.output / "tensorboard"),
        "WANDB_DIR": str(options.output),
    }
    settings = GRPOConfig(
        output_dir=str(options.output),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        num_generations=options.batch,
        enable_jit_checkpoint=options.enable_jit_checkpoint,
        max_completion_length=LENGTH,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        beta=0.2,
        logging_steps=options.logging_steps,
        save_strategy="steps" if options.save_steps else "no",
        save_steps=options.save_steps or 500,
        save_total_limit=options.save_total_limit,
        report_to=options.report_to or "none",
        run_name=options.output.name,
        seed=options.seed,
        use_cpu=True,
    )
    words = tokenizer()
    made = Trainer(
        model=model(options.output / "base", words),
        reward_funcs=reward(options.reward, options.later_reward, options.later),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": [f"{a}+{b}=" for a in range(40) for b in range(40)]}),
        processing_class=words,
        callbacks=[
            Pace(options.pace),
            Skip(),
            Explode(options.explode_after),
        ],
    )
    made.broken = frozenset(options.nan_at)
    return made


def main() -> None:
    """Train."""
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    trainer(options).train(resume_from_checkpoint=options.resume_from_checkpoint or options.resume or None)


if __name__ == "__main__":
    main()
