"""Consoles that print each record over several lines: AReaL, Tinker, CLU, DeepSpeed-Chat, NeMo-RL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.formats.console import Console, Dicts, Values, pieces
from exporter.runs.formats.tensorboard import Streams
from exporter.runs.signals import NONE_MAPPED, Mapped, measurements
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps, number

MOST_KEYS = 5000  # no trainer has more in a step: what is longer is not a table or list of its results


class BlockConsole(Console):
    """Gathers the values of a step, of one stream, until its block ends or the log pauses."""

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._step: int | None = None
        self._stream = ""
        self._values: Values = {}

    def flush(self) -> Iterator[Event]:
        if self._step is not None and self._values:
            yield Record(self._step, self._values, stream=self._stream)
        self._values = {}


_WALL = "│"
_TOP, _RULES = ("╒", "┌", "┏", "╭"), ("├", "╞", "┡", "╘", "└", "╰")
_BOTTOM = re.compile("[╘└╰][═─]")
LONGEST_ROW = 64 * 1024


class TableConsole(BlockConsole):
    """A table drawn in boxes, whose lines a terminal may have broken at its width."""

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._width = 0
        self._row = ""

    def _rows(self, piece: str) -> Iterator[list[str]]:
        """The cells of the row that ends with this piece of a line; none of a cut row's last."""
        if piece.startswith(_TOP):  # without its right corner, it shows the width of the terminal
            self._width = len(piece) if piece.endswith(("═", "─", "━", "╤", "┬", "┳")) else 0
        row, self._row = self._row + piece, ""
        if piece.startswith(_RULES):
            row = row.removesuffix(piece)
        elif self._width and _WALL in row and len(row) < LONGEST_ROW:
            self._row = row if len(piece) == self._width or not row.rstrip().endswith(_WALL) else ""
        if _WALL in row and not self._row:
            yield [cell.strip() for cell in row.split(_WALL)[1:-1]]


_AREAL_HEADER = re.compile(r"Epoch \d+/\d+ Step \d+/\d+ Train step (\d{1,15})/(\d{1,15}) done")


class Areal(TableConsole):
    """AReaL's console and log files: a line with the step, counted from 1, and a table of it drawn in boxes.

    ``Epoch 1/5 Step 12/100 Train step 12/500 done.``, then rows of several keys and values each:
    ``│ ppo_actor/task_reward/avg │ 5.3125e-01 │ timeperf/rollout │ 5.5200e+01 │``.
    """

    name = "areal_console"
    framework = "areal"
    known = re.compile(_AREAL_HEADER.pattern.encode())

    def _read(self, piece: str) -> Iterator[Event]:
        for cells in self._rows(piece):
            for key, value in zip(cells[::2], cells[1::2], strict=False):
                if key and number(value) is not None and len(self._values) < MOST_KEYS:
                    self._values[key] = value
        if header := _AREAL_HEADER.search(piece):
            yield from self.flush()
            self._step = int(header[1])
            yield TotalSteps(int(header[2]))
        elif _BOTTOM.search(piece):  # a collector of logs may have put its time before the line
            yield from self.flush()


_TITLE = re.compile(r"\s*Step (\d{1,15})\s*")
_HEADING = re.compile(r"┃[^┃]+┃[^┃]+┃\s*")


class RichTable(TableConsole):
    """A table of two columns, which rich drew below its title ``Step 12``: Tinker's console.

    Keys of more than 60 characters end in an ellipsis there, and are left out. Source:
    ``tinker_cookbook/utils/ml_log.py`` of 2026-08.
    """

    name = "rich_console"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._in_table = False
        self._last = "", ""

    def recognises(self, line: bytes) -> bool:
        return line.startswith("┃".encode()) and any(map(_HEADING.fullmatch, pieces(line)))

    def _read(self, piece: str) -> Iterator[Event]:
        if title := _TITLE.fullmatch(piece):
            yield from self.flush()
            self._step, self._in_table = int(title[1]), False
        elif _HEADING.fullmatch(piece):
            self._in_table = True
        elif not self._in_table and piece.strip() and not piece.startswith(_TOP):
            self._step = None  # other text: the title was none
        for cells in self._rows(piece):
            if self._in_table and len(cells) == 2 and len(self._values) < MOST_KEYS:
                key, value = cells
                if not value:  # a narrow column folds its keys: the value stands beside the first part
                    self._values.pop(self._last[0], None)
                    key, value = self._last[0] + key, self._last[1]
                self._last = key, value
                if number(value) is not None and "…" not in key:
                    self._values[key] = value
        if _BOTTOM.match(piece):
            yield from self.flush()
            self._step, self._in_table = None, False


_SCALARS = re.compile(r"\[(\d{1,15})\](?: collection=\S+)? ([^\s=,]+=[^\s=,]+(?:, [^\s=,]+=[^\s=,]+)*)\s*")
_TUNIX_STEP = re.compile(
    r"Train step (\d{1,15}) training loss: ([^\s,]+)(?:\s+- training perplexity: (\S+))?\s*"
)


class Clu(BlockConsole):
    """The console of CLU's ``LoggingWriter``: ``[12] actor/train/kl=0.01, actor/train/loss=0.5``.

    Tunix logs to it (``clu`` among its backends), one line a scalar, and in any case ``Train step 12
    training loss: 0.5  - training perplexity: 1.6``. Source: ``clu/metric_writers/logging_writer.py``,
    ``tunix/sft/metrics_logger.py`` and ``peft_trainer.py`` of 2026-08.
    """

    name = "clu_console"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._streams = Streams()

    def recognises(self, line: bytes) -> bool:
        if b"] " not in line and b"Train step " not in line:
            return False
        return any(
            measurements(tuple(values), self._mapped) for _, values in map(_scalars, pieces(line)) if values
        )

    def _read(self, piece: str) -> Iterator[Event]:
        step, values = _scalars(piece)
        for key, value in values.items():
            stream = self._streams.of(key.partition("/")[0], step)
            if (step, stream) != (self._step, self._stream) or len(self._values) >= MOST_KEYS:
                yield from self.flush()
            self._step, self._stream = step, stream
            self._values[key] = value


def _scalars(piece: str) -> tuple[int, Values]:
    if found := _SCALARS.fullmatch(piece):
        values = dict([pair.split("=") for pair in found[2].split(", ")])
    elif found := _TUNIX_STEP.fullmatch(piece):
        values = {"train/loss": found[2], "train/perplexity": found[3] or ""}
    else:
        return 0, {}
    return int(found[1]), {key: value for key, value in values.items() if number(value) is not None}


_NUMBER = r"([-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))(?![\d.])"
_NEXT = r"\s*[|,]\s*"
_DEEPSPEED_STEP = re.compile(
    rf"[Ee]poch: (\d{{1,9}}){_NEXT}[Ss]tep: (\d{{1,15}}){_NEXT}(?:ppo_ep|PPO Epoch): \d+{_NEXT}"
    rf"(?:act_loss|Actor Loss): {_NUMBER}{_NEXT}(?:cri_loss|Critic Loss): {_NUMBER}"
)
_DEEPSPEED_EPOCH = re.compile(r"Beginning of Epoch (\d{1,9})/(\d{1,9}), Total Generation Batches (\d{1,9})")
_MEASURED = {
    "reward": re.compile(rf"[Aa]verage reward score: {_NUMBER}"),
    "end_to_end_latency": re.compile(rf"(?:E2E latency=|End-to-End => Latency: ){_NUMBER}s"),
    "generation_latency": re.compile(rf"(?:Generate time=|Generation => Latency: ){_NUMBER}s"),
    "training_latency": re.compile(rf"(?:Training time=|Training\s+=> Latency: ){_NUMBER}s"),
}
_FAILED = re.compile(r"exits with return code = -?[1-9]")  # what DeepSpeed's launcher prints of the trainer


class DeepSpeedChat(BlockConsole):
    """DeepSpeed-Chat's third stage: a few lines a step, which counts from 0 over all epochs.

    ``Epoch: 0 | Step: 12 | PPO Epoch: 1 | Actor Loss: 0.21 | Critic Loss: 0.12 | Unsupervised Loss:
    0.0``, then how long the step took, then ``Average reward score: 0.55 | EMA reward score: 0.53``.
    Until 2023-09 the words were others: ``epoch: 0|step: 12|ppo_ep: 1|act_loss: 0.21|...``.
    Source: ``training/step3_rlhf_finetuning/main.py`` and ``dschat/utils/perf.py`` of DeepSpeedExamples
    (6eb5247, the newest).
    """

    name = "deepspeed_chat_console"
    framework = "deepspeed_chat"
    known = re.compile(_DEEPSPEED_STEP.pattern.encode())
    done = re.compile(rb"(?:^|\r)saving model \.\.\.")

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._epoch = self._before = 0
        self._batches: int | None = None

    def _read(self, piece: str) -> Iterator[Event]:
        if step := _DEEPSPEED_STEP.search(piece):
            yield from self.flush()
            epoch = int(step[1])
            if self._batches is not None:
                self._before = epoch * self._batches
            elif epoch != self._epoch:
                self._before = 0 if self._step is None else self._step + 1
            self._epoch, self._step = epoch, self._before + int(step[2])
            self._values = {"actor_loss": step[3], "critic_loss": step[4]}
        elif begun := _DEEPSPEED_EPOCH.search(piece):
            self._batches = int(begun[3])
            yield TotalSteps(int(begun[2]) * self._batches)
        elif _FAILED.search(piece):
            yield Ended("failed")
        else:
            found = ((key, pattern.search(piece)) for key, pattern in _MEASURED.items())
            self._values.update({key: match[1] for key, match in found if match})


NEMO_SECTIONS = {
    "Training Results": "train/",
    "Timing": "timing/train/",
    "Validation Results": "validation/",
    "Validation Timing": "timing/validation/",
}
NEMO_KEYS = {
    "train/generation_kl_error": "train/gen_kl_error",
    "train/avg_reward": "train/reward",
    "train/avg_total_reward": "train/reward",
    "train/avg_filtered_reward": "train/filtered_reward",
    "train/mean_generation_length": "train/mean_gen_tokens_per_sample",
    "validation/average_response_length": "validation/avg_length",
}
"""Where TensorBoard's key is not the bullet's words joined by underscores."""
_NEMO_STEP = re.compile(r"=== Step (\d{1,15})/(\d{1,15}) ===")
_NEMO_EPOCH = re.compile(r"=== Epoch (\d{1,9})/(\d{1,9}) ===")
_SECTION = re.compile(r"\W*([A-Z][A-Za-z ]{2,40}):\s*$")
_BULLET = re.compile(r"\s*•\s*([^\s:][^:]{0,99}):\s*([-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))(?:s?\b|$)")
_STEP_BEFORE = re.compile(r"\b[Ss]tep[ =:]{1,3}(\d{1,15})\b")


class NemoRl(BlockConsole):
    """NeMo-RL's console: text for people, several lines a step, which counts on over the epochs.

    A header ``=== Step 12/500 ===``, then sections of bullets: ``• Avg Reward:
    0.5312`` below ``Training Results:``. They are given the keys that NeMo-RL logs to TensorBoard. The newer
    controller prints a dict a step; without a step near it, it is left out.
    """

    name = "nemo_rl_console"
    framework = "nemo_rl"
    done = re.compile(rb"Max number of steps has been reached")

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._step = 0
        self._epochs: int | None = None
        self._epochs_done = 0
        self._step_of_epoch = 0
        self._has_header = self._has_results = False
        self._dicts = Dicts()
        self._section = ""

    def recognises(self, line: bytes) -> bool:
        if b"Training Results:" not in line:
            return False
        sections = map(_SECTION.match, pieces(line))
        return any(section is not None and section[1] == "Training Results" for section in sections)

    def _read(self, piece: str) -> Iterator[Event]:
        if bullet := _BULLET.match(piece):
            if self._section and len(self._values) < MOST_KEYS:
                key = self._section + bullet[1].strip().lower().replace(" ", "_")
                self._values[NEMO_KEYS.get(key, key)] = bullet[2]
        elif section := _SECTION.match(piece):
            self._section = NEMO_SECTIONS.get(section[1], "")
            if self._section == "train/":
                if self._has_results:
                    yield from self.flush()
                if self._has_results or not self._has_header:  # a log without headers: those of the next step
                    self._step = (self._step or 0) + 1
                self._has_results = True
        elif "===" in piece:
            yield from self._header(piece)
        else:
            for before, values in self._dicts.parse(piece):
                logged = _STEP_BEFORE.findall(before)
                step = int(logged[-1]) if logged else self._step
                if before.endswith("step_metrics=") and (logged or step):
                    named = {key if "/" in key else f"train/{key}": value for key, value in values.items()}
                    yield Record(step or 0, named)

    def _header(self, piece: str) -> Iterator[Event]:
        """``Step 12/500`` (twice if sampled again) or ``Epoch 2/3``, else counted: step 1 after the last."""
        if found := _NEMO_STEP.search(piece):
            yield from self.flush()
            step, steps = int(found[1]), int(found[2])
            if self._epochs is None and step == 1 and self._step_of_epoch == steps and self._has_results:
                self._epochs_done += 1
            self._section, self._has_header, self._has_results = "", True, False
            self._step_of_epoch, self._step = step, self._epochs_done * steps + step
            if self._epochs == 1:
                yield TotalSteps(steps)
        elif epoch := _NEMO_EPOCH.search(piece):
            self._epochs_done, self._epochs = max(0, int(epoch[1]) - 1), int(epoch[2])
