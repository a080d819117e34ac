"""NeMo-RL's console: text for people, several lines a step.

A header ``=== Step 12/500 ===``, then sections of bullets: ``• Avg Reward: 0.5312`` below
``Training Results:``. They are given the keys that NeMo-RL logs to TensorBoard.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.base import Source
from exporter.runs.sources.console import ending, pieces
from exporter.runs.sources.python_dict import Dicts, Values

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


class NemoRl(Source):
    """NeMo-RL's console output. The step counts on over the epochs, as it does in TensorBoard."""

    name = "nemo_rl_console"
    framework = "nemo_rl"

    def __init__(self) -> None:
        self._step = 0
        self._epochs: int | None = None
        self._epochs_done = 0
        self._step_of_epoch = 0
        self._has_header = self._has_results = False
        self._dicts = Dicts()
        self._section = ""
        self._values: Values = {}

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        if b"Training Results:" not in line:
            return False
        sections = map(_SECTION.match, pieces(line))
        return any(section is not None and section[1] == "Training Results" for section in sections)

    def parse(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            if bullet := _BULLET.match(piece):
                if self._section and len(self._values) < MOST_KEYS:
                    key = self._section + bullet[1].strip().lower().replace(" ", "_")
                    self._values[KEYS.get(key, key)] = bullet[2]
            elif section := _SECTION.match(piece):
                yield from self._begin_section(SECTIONS.get(section[1], ""))
            elif "===" in piece:
                yield from self._header(piece)
            elif _ENDED in piece:
                yield from self.flush()
                yield Ended("finished")
            else:
                yield from self._metrics(piece)
        if ended := ending(line):
            yield ended

    def flush(self) -> Iterator[Event]:
        """What is known of the step so far; more of it may come."""
        if self._values:
            yield Record(self._step, self._values)
        self._values = {}

    def _begin_section(self, section: str) -> Iterator[Event]:
        self._section = section
        if section == "train/":
            if self._has_results:
                yield from self.flush()
            if self._has_results or not self._has_header:  # a log without headers: those of the next step
                self._step += 1
            self._has_results = True

    def _header(self, piece: str) -> Iterator[Event]:
        """``Step 12/500`` or ``Epoch 2/3``. A step that is sampled again has its header twice.

        Where the log does not hold the epochs, 1 behind the last step is the next epoch.
        """
        if found := _STEP.search(piece):
            yield from self.flush()
            step, steps = int(found[1]), int(found[2])
            if self._epochs is None and step == 1 and self._step_of_epoch == steps and self._has_results:
                self._epochs_done += 1
            self._section, self._has_header, self._has_results = "", True, False
            self._step_of_epoch, self._step = step, self._epochs_done * steps + step
            if self._epochs == 1:
                yield TotalSteps(steps)
        elif epoch := _EPOCH.search(piece):
            self._epochs_done, self._epochs = max(0, int(epoch[1]) - 1), int(epoch[2])

    def _metrics(self, piece: str) -> Iterator[Event]:
        """The newer controller prints a dict a step; without a step near it, it is left out."""
        for before, values in self._dicts.parse(piece):
            if before.endswith(_METRICS):
                found = _STEP_BEFORE.findall(before)
                if found or self._step:
                    step = int(found[-1]) if found else self._step
                    named = {
                        name if "/" in name else f"train/{name}": value for name, value in values.items()
                    }
                    yield Record(step, named)
