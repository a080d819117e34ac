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
from exporter.runs.sources.endings import ending
from exporter.runs.sources.terminal import pieces

_NUMBER = r"([-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))(?![\d.])"
_NEXT = r"\s*[|,]\s*"
_STEP = re.compile(
    rf"[Ee]poch: (\d{{1,9}}){_NEXT}[Ss]tep: (\d{{1,15}}){_NEXT}(?:ppo_ep|PPO Epoch): \d+{_NEXT}"
    rf"(?:act_loss|Actor Loss): {_NUMBER}{_NEXT}(?:cri_loss|Critic Loss): {_NUMBER}"
)
_EPOCH = re.compile(r"Beginning of Epoch (\d{1,9})/(\d{1,9}), Total Generation Batches (\d{1,9})")
_SAID = {
    "reward": re.compile(rf"[Aa]verage reward score: {_NUMBER}"),
    "end_to_end_latency": re.compile(rf"(?:E2E latency=|End-to-End => Latency: ){_NUMBER}s"),
    "generation_latency": re.compile(rf"(?:Generate time=|Generation => Latency: ){_NUMBER}s"),
    "training_latency": re.compile(rf"(?:Training time=|Training\s+=> Latency: ){_NUMBER}s"),
}
_FAILED = re.compile(r"exits with return code = -?[1-9]")
"""What DeepSpeed's launcher says of the trainer."""


class DeepSpeedChat:
    """Steps count on over the epochs, from 0."""

    name = "deepspeed_chat_console"
    framework = "deepspeed_chat"

    def __init__(self) -> None:
        self._step: int | None = None
        self._epoch = self._before = 0
        self._batches: int | None = None
        self._values: dict[str, str] = {}

    @staticmethod
    def recognises(line: bytes) -> bool:
        return b"poch: " in line and any(map(_STEP.search, pieces(line)))

    def read(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            if step := _STEP.search(piece):
                yield from self.rest()
                self._begin(int(step[1]), int(step[2]))
                self._values = {"actor_loss": step[3], "critic_loss": step[4]}
            elif epoch := _EPOCH.search(piece):
                self._batches = int(epoch[3])
                yield TotalSteps(int(epoch[2]) * self._batches)
            elif piece.startswith("saving model ..."):
                yield from self.rest()
                yield Ended("finished")
            elif _FAILED.search(piece):
                yield Ended("failed")
            else:
                found = {key: said[1] for key, about in _SAID.items() if (said := about.search(piece))}
                self._values.update(found)
        if ended := ending(line):
            yield ended

    def rest(self) -> Iterator[Event]:
        """What is known of the step so far; more of it may come."""
        if self._step is not None and self._values:
            yield Record(self._step, self._values)
        self._values = {}

    def _begin(self, epoch: int, step: int) -> None:
        if epoch != self._epoch and self._batches is None:
            self._before = (self._step if self._step is not None else -1) + 1
        elif self._batches is not None:
            self._before = epoch * self._batches
        self._epoch, self._step = epoch, self._before + step
