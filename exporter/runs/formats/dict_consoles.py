"""Consoles that print each record as a Python dict behind its step: OpenRLHF, slime, SkyRL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.formats.base import Source
from exporter.runs.formats.console import Dicts, Values, ending, pieces, servers
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps, number


def _has_numbers(values: Values) -> bool:
    return any(number(value) is not None for value in values.values())


# OpenRLHF: ``INFO 08-13 10:11:12 ppo_trainer.py:547] ✨ Global step 12: {'reward': 0.5}``. The time lacks its
# year: it is not used.

EVALUATION = "eval"  # Stream of evaluations: the asynchronous trainer logs them when it is steps ahead
_LINE_START = r"(?:^|[\])|])\W*"
_GLOBAL_STEP = re.compile(_LINE_START + r"Global step (\d{1,15}): $")
_EVALUATION = re.compile(
    _LINE_START + r"(?:Evaluation completed in [^'\"]{1,60}, global_step (\d{1,15}), eval_metrics"
    r"|Eval at step (\d{1,15})): $"
)
_OPENRLHF_RECORD = re.compile(
    rb"(?:Global step \d{1,15}|global_step \d{1,15}, eval_metrics|Eval at step \d{1,15}): \{['\"]"
)


class OpenRlhf(Source):
    """OpenRLHF's console output, of the synchronous and the asynchronous trainer."""

    name = "openrlhf_console"
    framework = "openrlhf"

    def __init__(self) -> None:
        self._dicts = Dicts()

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return _OPENRLHF_RECORD.search(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            for before, values in self._dicts.parse(piece):
                if not _has_numbers(values):
                    continue
                if step := _GLOBAL_STEP.search(before):
                    yield Record(int(step[1]), values)
                elif evaluation := _EVALUATION.search(before):
                    yield Record(int(evaluation[1] or evaluation[2]), values, stream=EVALUATION)
        if ended := ending(line):
            yield ended


# slime: ``[2026-08-21 10:11:12] model.py:918 - step 11: {'train/loss': -0.002, ...}``. Each part of the
# trainer logs its own lines. Their time is that of the trainer's machine without its zone: it is not used.

_KINDS = "rollout|step|perf|eval|critic-step"
_KEYS = ("rollout/", "train/", "perf/", "eval/")
_SLIME_STEP = re.compile(rf"(?:^\s*|- )({_KINDS}) (\d{{1,15}}): $")
_SLIME_RECORD = re.compile(
    rf"(?:^|- |[)m\r] ?)(?:{_KINDS}) \d{{1,15}}: \{{'(?:rollout|train|perf|eval)/".encode()
)
_OPTIMIZER = ("step", "critic-step")  # lines that count the steps of an optimizer


class Slime(Source):
    """slime's console output. The step of the run is the rollout's number, which starts at 0."""

    name = "slime_console"
    framework = "slime"

    def __init__(self) -> None:
        self._dicts = Dicts()
        self._rollout: int | None = None

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return b": {'" in line and _SLIME_RECORD.search(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            for before, values in self._dicts.parse(piece):
                found = _SLIME_STEP.search(before)
                if found and any(key.startswith(_KEYS) for key in values):
                    yield self._record(found[1], int(found[2]), values)
        if mention := servers(line):
            yield mention
        if ended := ending(line):
            yield ended

    def _record(self, kind: str, step: int, values: Values) -> Record:
        if kind == "rollout":
            self._rollout = step
        elif kind in _OPTIMIZER and self._rollout is not None:
            step = min(step, self._rollout)  # several steps of the optimizer make one rollout
        # two processes log perf lines, and one may be a rollout ahead: their keys distinguish them
        of_rollout = kind == "perf" and any(key.startswith(("rollout/", "perf/rollout")) for key in values)
        return Record(step, values, stream="perf of rollout" if of_rollout else kind)


# SkyRL's ``console`` logger: ``... | INFO | skyrl.train.utils.tracking:log:201 - Step 12:``, then a dict over
# many lines, of texts of four decimals. Source: ``skyrl/train/utils/tracking.py`` (``ConsoleLogger``) and
# ``skyrl/train/trainer.py`` of 2026-10.

_HEAD = re.compile(r"tracking:log:\d+ - Step (\d{1,15}):\s*$")
_BAR = re.compile(rb"Training (?:Batches|Steps) Processed:\s*\d{1,3}%\|[^|]*\|\s*\d{1,15}/(\d{1,15}) ")
_DONE = " - Training done!"


class SkyRl(Source):
    """SkyRL's console output. Its bar shows the total; its last line, the end."""

    name = "skyrl_console"

    def __init__(self) -> None:
        self._dicts = Dicts()
        self._step: int | None = None
        self._total: int | None = None

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return b"tracking" in line and any(map(_HEAD.search, pieces(line)))

    def parse(self, line: bytes) -> Iterator[Event]:
        if (bar := _BAR.search(line)) and int(bar[1]) != self._total:
            self._total = int(bar[1])
            yield TotalSteps(self._total)
        for piece in pieces(line):
            if head := _HEAD.search(piece):
                self._step, self._dicts = int(head[1]), Dicts()
                continue
            for before, values in self._dicts.parse(piece):
                if self._step is not None and not before.strip() and _has_numbers(values):
                    yield Record(self._step, values)
                self._step = None
            if not self._dicts.is_open:
                self._step = None  # no dict followed: another program's line
            if piece.endswith(_DONE):
                yield Ended("finished")
        if ended := ending(line):
            yield ended
