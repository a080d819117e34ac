"""DeepSpeed-Chat's console: a few lines a step, of the third stage of its training.

``Epoch: 0 | Step: 12 | PPO Epoch: 1 | Actor Loss: 0.21 | Critic Loss: 0.12 | Unsupervised Loss: 0.0``,
then how long the step took, then ``Average reward score: 0.55 | EMA reward score: 0.53``. Until
2023-09 the words were others: ``epoch: 0|step: 12|ppo_ep: 1|act_loss: 0.21|...``.

Source: ``training/step3_rlhf_finetuning/main.py`` and ``dschat/utils/perf.py`` of DeepSpeedExamples
(6eb5247, the newest).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.base import Source
from exporter.runs.sources.console import ending, pieces

_NUMBER = r"([-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))(?![\d.])"
_NEXT = r"\s*[|,]\s*"
_STEP = re.compile(
    rf"[Ee]poch: (\d{{1,9}}){_NEXT}[Ss]tep: (\d{{1,15}}){_NEXT}(?:ppo_ep|PPO Epoch): \d+{_NEXT}"
    rf"(?:act_loss|Actor Loss): {_NUMBER}{_NEXT}(?:cri_loss|Critic Loss): {_NUMBER}"
)
_EPOCH = re.compile(r"Beginning of Epoch (\d{1,9})/(\d{1,9}), Total Generation Batches (\d{1,9})")
_MEASURED = {
    "reward": re.compile(rf"[Aa]verage reward score: {_NUMBER}"),
    "end_to_end_latency": re.compile(rf"(?:E2E latency=|End-to-End => Latency: ){_NUMBER}s"),
    "generation_latency": re.compile(rf"(?:Generate time=|Generation => Latency: ){_NUMBER}s"),
    "training_latency": re.compile(rf"(?:Training time=|Training\s+=> Latency: ){_NUMBER}s"),
}
_FAILED = re.compile(r"exits with return code = -?[1-9]")
"""What DeepSpeed's launcher prints of the trainer."""


class DeepSpeedChat(Source):
    """Steps count on over the epochs, from 0."""

    name = "deepspeed_chat_console"
    framework = "deepspeed_chat"

    def __init__(self) -> None:
        self._step: int | None = None
        self._epoch = self._before = 0
        self._batches: int | None = None
        self._values: dict[str, str] = {}

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return b"poch: " in line and any(map(_STEP.search, pieces(line)))

    def parse(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            if step := _STEP.search(piece):
                yield from self.flush()
                epoch = int(step[1])
                if self._batches is not None:
                    self._before = epoch * self._batches
                elif epoch != self._epoch:
                    self._before = 0 if self._step is None else self._step + 1
                self._epoch, self._step = epoch, self._before + int(step[2])
                self._values = {"actor_loss": step[3], "critic_loss": step[4]}
            elif begun := _EPOCH.search(piece):
                self._batches = int(begun[3])
                yield TotalSteps(int(begun[2]) * self._batches)
            elif piece.startswith("saving model ..."):
                yield from self.flush()
                yield Ended("finished")
            elif _FAILED.search(piece):
                yield Ended("failed")
            else:
                found = ((key, pattern.search(piece)) for key, pattern in _MEASURED.items())
                self._values.update({key: match[1] for key, match in found if match})
        if ended := ending(line):
            yield ended

    def flush(self) -> Iterator[Event]:
        """What is known of the step so far; more of it may come."""
        if self._step is not None and self._values:
            yield Record(self._step, self._values)
        self._values = {}
