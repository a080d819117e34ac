"""NeMo-RL's console: text for people, several lines a step.

A header ``=== Step 12/500 ===``, then sections of bullets: ``• Avg Reward: 0.5312`` below
``Training Results:``. They are given the keys that NeMo-RL logs to TensorBoard.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.endings import ending
from exporter.runs.sources.python_dict import Dicts, Values
from exporter.runs.sources.terminal import pieces


class Steps:
    """``step`` counts over all epochs and is 0 before the first; ``epochs`` is how many there will be.

    ``has_results``: the step's training results were seen.
    """

    def __init__(self) -> None:
        self.step = 0
        self.epochs: int | None = None
        self.has_results = False
        self._has_header = False
        self._epochs_done = 0
        self._in_epoch = 0

    def epoch_header(self, epoch: int, epochs: int) -> None:
        """``Epoch 2/3``: the log tells the epochs."""
        self._epochs_done, self.epochs = max(0, epoch - 1), epochs

    def header(self, step: int, steps: int) -> None:
        """``Step 12/500``. Where the log does not tell the epochs, 1 behind the last one is the next.

        A step that is sampled again has its header twice.
        """
        if self.epochs is None and step == 1 and self._in_epoch == steps and self.has_results:
            self._epochs_done += 1
        self._in_epoch, self.has_results, self._has_header = step, False, True
        self.step = self._epochs_done * steps + step

    def results(self) -> None:
        """Training results begin: in a log without headers, those of the next step."""
        if self.has_results or not self._has_header:
            self.step += 1
        self.has_results = True


MOST_KEYS = 5000
"""No trainer has more in a step: what comes then is not a list of results."""

SECTIONS = {
    "Training Results": "train/",
    "Timing": "timing/train/",
    "Validation Results": "validation/",
    "Validation Timing": "timing/validation/",
}

KEYS = {
    "train/generation_kl_error": "train/gen_kl_error",
    "train/avg_reward": "train/reward",
    "train/avg_total_reward": "train/reward",
    "train/avg_filtered_reward": "train/filtered_reward",
    "train/mean_generation_length": "train/mean_gen_tokens_per_sample",
    "validation/average_response_length": "validation/avg_length",
}
"""Where TensorBoard's key is not the bullet's words joined by underscores."""

_STEP = re.compile(r"=== Step (\d{1,15})/(\d{1,15}) ===")
_EPOCH = re.compile(r"=== Epoch (\d{1,9})/(\d{1,9}) ===")
_SECTION = re.compile(r"\W*([A-Z][A-Za-z ]{2,40}):\s*$")
_BULLET = re.compile(r"\s*•\s*([^\s:][^:]{0,99}):\s*([-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))(?:s?\b|$)")
_ENDED = "Max number of steps has been reached"
_METRICS = "step_metrics="
_STEP_BEFORE = re.compile(r"\b[Ss]tep[ =:]{1,3}(\d{1,15})\b")


class NemoRl:
    """NeMo-RL's console output. The step counts on over the epochs, as it does in TensorBoard."""

    name = "nemo_rl_console"
    framework = "nemo_rl"

    def __init__(self) -> None:
        self._steps = Steps()
        self._dicts = Dicts()
        self._section = ""
        self._values: Values = {}

    @staticmethod
    def recognises(line: bytes) -> bool:
        return b"Training Results:" in line and any(_is_training(piece) for piece in pieces(line))

    def read(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            yield from self._piece(piece)
        if ended := ending(line):
            yield ended

    def rest(self) -> Iterator[Event]:
        """What is known of the step so far; more of it may come."""
        if self._values:
            yield Record(self._steps.step, self._values)
        self._values = {}

    def _piece(self, piece: str) -> Iterator[Event]:
        if bullet := _BULLET.match(piece):
            self._bullet(bullet[1], bullet[2])
        elif section := _SECTION.match(piece):
            yield from self._begin_section(section[1])
        elif "===" in piece:
            yield from self._header(piece)
        elif _ENDED in piece:
            yield from self.rest()
            yield Ended("finished")
        else:
            yield from self._metrics(piece)

    def _bullet(self, words: str, value: str) -> None:
        if self._section and len(self._values) < MOST_KEYS:
            key = self._section + words.strip().lower().replace(" ", "_")
            self._values[KEYS.get(key, key)] = value

    def _begin_section(self, words: str) -> Iterator[Event]:
        self._section = SECTIONS.get(words, "")
        if self._section == "train/":
            if self._steps.has_results:
                yield from self.rest()
            self._steps.results()

    def _header(self, piece: str) -> Iterator[Event]:
        if step := _STEP.search(piece):
            yield from self.rest()
            self._section = ""
            self._steps.header(int(step[1]), int(step[2]))
            if self._steps.epochs == 1:
                yield TotalSteps(int(step[2]))
        elif epoch := _EPOCH.search(piece):
            self._steps.epoch_header(int(epoch[1]), int(epoch[2]))

    def _metrics(self, piece: str) -> Iterator[Event]:
        """The newer controller prints a dict a step; without a step near it, it tells nothing."""
        for before, values in self._dicts.read(piece):
            if before.endswith(_METRICS):
                found = _STEP_BEFORE.findall(before)
                if found or self._steps.step:
                    step = int(found[-1]) if found else self._steps.step
                    yield Record(step, {_key(name): value for name, value in values.items()})


def _is_training(piece: str) -> bool:
    section = _SECTION.match(piece)
    return section is not None and section[1] == "Training Results"


def _key(name: str) -> str:
    return name if "/" in name else f"train/{name}"
