"""The trainers of the tests: how each is started, and what it recorded itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.real.trainers import TRL, VERL, Training


@dataclass(frozen=True)
class Trainer:
    """One trainer, and what the shell does with its output.

    Attributes:
        name: Of the trainer: ``trl`` or ``verl``.
        through: What the shell does with the output.
        buffered: Whether standard output comes in blocks, as Python has it by default.
    """

    name: Literal["trl", "verl"]
    through: Literal["tee", "file"]
    buffered: bool = False

    def __str__(self) -> str:
        return "-".join([self.name, self.through, *(["buffered"] if self.buffered else [])])

    def training(
        self,
        folder: Path,
        options: str = "",
        *,
        steps: int,
        append: bool = False,
        log: Path | None = None,
    ) -> Training:
        """A training in a folder, with its log in ``runs/a.log`` there unless another is named."""
        own = {
            "trl": "--save-steps 10 --pace 0.2",
            "verl": "--save-every 10 --pace 0.2 --loggers console file",
        }
        return Training(
            TRL if self.name == "trl" else VERL,
            *("--output", "out", "--steps", str(steps), *own[self.name].split(), *options.split()),
            log=log or folder / "runs" / "a.log",
            through=self.through,
            append=append,
            buffered=self.buffered,
            folder=folder,
        )

    def fails_after(self, steps: int) -> str:
        """The options with which the trainer raises after so many steps."""
        return {
            "trl": f"--later-reward failing --later {steps}",
            "verl": f"--raise-at {steps + 1}",
        }[self.name]

    @property
    def resumes(self) -> str:
        """The options with which it goes on from its newest checkpoint."""
        return "--resume" if self.name == "trl" else ""

    def recorded(self, folder: Path) -> dict[int, float]:
        """The rewards by step that the trainer recorded in its checkpoint or its own JSON lines."""
        if self.name == "trl":
            states = folder.glob("out/checkpoint-*/trainer_state.json")
            newest = max(states, key=lambda path: int(path.parent.name.partition("-")[2]))
            history = json.loads(newest.read_text())["log_history"]
            return {record["step"]: record["reward"] for record in history if "reward" in record}
        (lines,) = folder.glob("out/jsonl/demo/*.jsonl")
        records = map(json.loads, lines.read_text().splitlines())
        return {each["step"]: each["data"]["critic/score/mean"] for each in records}


def bar(step: int, total: int) -> str:
    """What a log holds once the progress bar shows that a step is done."""
    return f"| {step}/{total} ["


EVERY = [
    Trainer("trl", "tee"),
    Trainer("trl", "tee", buffered=True),
    Trainer("trl", "file"),
    Trainer("trl", "file", buffered=True),
    Trainer("verl", "tee"),
    Trainer("verl", "file"),
]
