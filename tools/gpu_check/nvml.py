"""What NVML says, by its plain calls, and how long each takes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import pynvml

from tools.gpu_check.rows import ROWS, Ask
from tools.gpu_check.smi import NoGpuError

QUESTIONS = {row.name: row.ask for row in ROWS if row.ask is not None}


class Answer(NamedTuple):
    """A value in our unit, and the seconds that the call took."""

    value: float
    seconds: float


Answers = dict[tuple[str, str], Answer]
"""By UUID and the row's name."""


def ask(uuids: Iterable[str]) -> Answers:
    """What each GPU answers, as far as it does.

    Raises:
        NoGpuError: the library cannot be used.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoGpuError(f"NVML says: {error}") from error
    found: Answers = {}
    for uuid in uuids:
        for name, question in QUESTIONS.items():
            with suppress(pynvml.NVMLError, AttributeError):  # this GPU, driver or wheel has no such call
                found[uuid, name] = _answer(uuid, question)
    pynvml.nvmlShutdown()
    return found


def _answer(uuid: str, question: Ask) -> Answer:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    call = getattr(pynvml, f"nvmlDeviceGet{question.call}")
    began = time.perf_counter()
    value = call(handle, *question.arguments)
    return Answer(value * question.scale, time.perf_counter() - began)


def usual_seconds(rounds: Iterable[Answers]) -> dict[str, float]:
    """What each call usually takes, the slowest first."""
    took: dict[str, list[float]] = {}
    for answers in rounds:
        for (_, name), answer in answers.items():
            took.setdefault(QUESTIONS[name].call, []).append(answer.seconds)
    usual = {call: median(seconds) for call, seconds in took.items()}
    return dict(sorted(usual.items(), key=lambda each: -each[1]))
