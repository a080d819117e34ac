"""Consoles that print each record as a Python dict behind its step: OpenRLHF, slime, SkyRL.

Times of their loggers lack the year or the zone: they are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.formats.console import Console, Dicts, Values, pieces
from exporter.runs.signals import NONE_MAPPED, Mapped
from exporter.runs.signals.record import Event, Record, TotalSteps, number


def _has_numbers(values: Values) -> bool:
    return any(number(value) is not None for value in values.values())


_LINE_START = r"(?:^|[\])|])\W*"
_GLOBAL_STEP = re.compile(_LINE_START + r"Global step (\d{1,15}): $")
_EVALUATION = re.compile(
    _LINE_START + r"(?:Evaluation completed in [^'\"]{1,60}, global_step (\d{1,15}), eval_metrics"
    r"|Eval at step (\d{1,15})): $"
)


class OpenRlhf(Console):
    """OpenRLHF: ``INFO 08-13 10:11:12 ppo_trainer.py:547] ✨ Global step 12: {'reward': 0.5}``.

    Evaluations are a stream: the asynchronous trainer logs them when it is steps ahead.
    """

    name = "openrlhf_console"
    framework = "openrlhf"
    known = re.compile(
        rb"(?:Global step \d{1,15}|global_step \d{1,15}, eval_metrics|Eval at step \d{1,15}): \{['\"]"
    )

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._dicts = Dicts()

    def _read(self, piece: str) -> Iterator[Event]:
        for before, values in self._dicts.parse(piece):
            if not _has_numbers(values):
                continue
            if step := _GLOBAL_STEP.search(before):
                yield Record(int(step[1]), values)
            elif evaluation := _EVALUATION.search(before):
                yield Record(int(evaluation[1] or evaluation[2]), values, stream="eval")


_KINDS = "rollout|step|perf|eval|critic-step"
_SLIME_STEP = re.compile(rf"(?:^\s*|- )({_KINDS}) (\d{{1,15}}): $")


class Slime(Console):
    """slime: ``[2026-08-21 10:11:12] model.py:918 - step 11: {'train/loss': -0.002, ...}``.

    Each part of the trainer logs its own lines. The step of the run is the rollout's number, from 0.
    """

    name = "slime_console"
    framework = "slime"
    known = re.compile(
        rf"(?:^|- |[)m\r] ?)(?:{_KINDS}) \d{{1,15}}: \{{'(?:rollout|train|perf|eval)/".encode()
    )

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._dicts = Dicts()
        self._rollout: int | None = None

    def recognises(self, line: bytes) -> bool:
        return b": {'" in line and super().recognises(line)

    def _read(self, piece: str) -> Iterator[Event]:
        for before, values in self._dicts.parse(piece):
            found = _SLIME_STEP.search(before)
            if not found or not any(
                key.startswith(("rollout/", "train/", "perf/", "eval/")) for key in values
            ):
                continue
            kind, step = found[1], int(found[2])
            if kind == "rollout":
                self._rollout = step
            elif kind in ("step", "critic-step") and self._rollout is not None:
                step = min(step, self._rollout)  # several steps of the optimizer make one rollout
            elif kind == "perf" and any(key.startswith(("rollout/", "perf/rollout")) for key in values):
                kind = "perf of rollout"  # of another process, which may be a rollout ahead
            yield Record(step, values, stream=kind)


_HEAD = re.compile(r"tracking:log:\d+ - Step (\d{1,15}):\s*$")
_BAR = re.compile(r"Training (?:Batches|Steps) Processed:\s*\d{1,3}%\|[^|]*\|\s*\d{1,15}/(\d{1,15}) ")


class SkyRl(Console):
    """SkyRL: ``... | INFO | skyrl.train.utils.tracking:log:201 - Step 12:``, then a dict over many lines.

    Its bar shows the total. Source: ``skyrl/train/utils/tracking.py`` (``ConsoleLogger``) and
    ``skyrl/train/trainer.py`` of 2026-10.
    """

    name = "skyrl_console"
    done = re.compile(rb" - Training done!(?:\x1b\[[0-9;]*m)*(?:\r|$)")

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._dicts = Dicts()
        self._step: int | None = None
        self._total: int | None = None

    def recognises(self, line: bytes) -> bool:
        return b"tracking" in line and any(map(_HEAD.search, pieces(line)))

    def _read(self, piece: str) -> Iterator[Event]:
        if (bar := _BAR.search(piece)) and int(bar[1]) != self._total:
            self._total = int(bar[1])
            yield TotalSteps(self._total)
        if head := _HEAD.search(piece):
            self._step, self._dicts = int(head[1]), Dicts()
            return
        for before, values in self._dicts.parse(piece):
            if self._step is not None and not before.strip() and _has_numbers(values):
                yield Record(self._step, values)
            self._step = None
        if not self._dicts.is_open:
            self._step = None  # no dict followed: another program's line
