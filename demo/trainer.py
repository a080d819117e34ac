"""A simulated trainer: writes its log step by step, and starts over at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import BinaryIO

from demo import batch, verl
from demo.scenario import RESPONSE_LIMIT, Scenario
from demo.verl import PROMPT_LIMIT, Values


class File:
    """``trainer.logger=file``: nothing but records, and so no total and no end mark."""

    suffix = ".jsonl"

    def opening(self, total: int, servers: Sequence[str]) -> str:  # noqa: ARG002 - the file has no such line
        """Return the lines before the first record of a run of ``total`` steps with these rollout servers."""
        return ""

    def record(self, step: int, values: Values) -> str:
        """Return the line of one record."""
        return json.dumps({"step": step, "data": values}, separators=(",", ":")) + "\n"

    def closing(self, values: Values) -> str:  # noqa: ARG002 - nor this
        """Return the lines after the last record, with the values of the last validation."""
        return ""


class Console(File):
    """``trainer.logger=console``, as Ray shows it on the driver's terminal: with colours and chatter."""

    suffix = ".log"

    def opening(self, total: int, servers: Sequence[str]) -> str:
        lines = (
            "TaskRunner hostname: simulation, PID: 4711",
            f"{{'data': {{'max_prompt_length': {PROMPT_LIMIT},",
            f"          'max_response_length': {RESPONSE_LIMIT}}},",
            " 'trainer': {'logger': ['console'], 'project_name': 'demo'}}",
            f"Total training steps: {total}",
            *([f"LLMServerManager: {list(servers)}"] if servers else []),
        )
        return "".join(map(_said, lines))

    def record(self, step: int, values: Values) -> str:
        fields = [f"step:{step}", *(f"{key}:{value!r}" for key, value in values.items())]
        return _said(" - ".join(fields))

    def closing(self, values: Values) -> str:
        return _said(f"Final validation metrics: {values!r}")


LOGGERS = {"file": File(), "console": Console()}


def _said(line: str) -> str:
    return f"\x1b[36m(TaskRunner pid=4711)\x1b[0m {line}\n"


TOTAL = 12_000
"""Steps of a run: an hour of them, some 30 MB of log."""
REST = 60
"""Time between a run's end and its next start, in steps: long enough for the end to be noticed."""
VALIDATION = 40
"""Steps between two validations."""


@dataclass
class Trainer:
    """One run of the demo.

    ``folder`` gets its log, ``seconds`` is how long a step takes; the same ``seed`` gives the same
    numbers. ``servers`` are the addresses of its rollout servers.
    """

    scenario: Scenario
    folder: Path
    seed: int
    seconds: float
    total: int = TOTAL
    servers: Sequence[str] = ()
    _file: BinaryIO | None = field(default=None, init=False)
    _ticks: Iterator[str] = field(default_factory=lambda: iter(()), init=False)

    @property
    def path(self) -> Path:
        """The log: verl empties it on each start, and so do we."""
        return self.folder / f"{self.scenario.name}{self._logger.suffix}"

    def tick(self) -> None:
        """Let the time of one step pass.

        Raises:
            OSError: the log cannot be written.
        """
        text = next(self._ticks, None)
        if text is None:
            self.close()
            self.folder.mkdir(parents=True, exist_ok=True)
            # A record is there at once, as with verl.
            self._file = self.path.open("wb", buffering=0)
            self._ticks = self._attempt()
            text = next(self._ticks)
        if text and self._file:
            self._file.write(text.encode())

    def close(self) -> None:
        """Close the log."""
        if self._file:
            self._file.close()

    def remove(self) -> None:
        """Leave nothing behind: a log that no longer grows would be taken for a run in trouble."""
        self.close()
        self.path.unlink(missing_ok=True)

    @property
    def _logger(self) -> File:
        return LOGGERS[self.scenario.logger]

    def _attempt(self) -> Iterator[str]:
        """What it writes in each step's time; nothing while it hangs or rests."""
        rng = Random(f"{self.seed} {self.scenario.name}")  # noqa: S311 - a simulation, no secret
        last = self.total if self.scenario.hangs_after is None else self.scenario.hangs_after
        score = self.scenario.level(0).score
        yield self._logger.opening(self.total, self.servers) + self._logger.record(0, verl.validation(score))
        for step in range(1, self.total + 1):
            if step > last:
                yield ""
                continue
            level = self.scenario.level(step)
            values = verl.training(step, level, batch.draw(level, rng), self.seconds, rng)
            if step % VALIDATION == 0:
                values |= verl.validation(level.score)
            yield self._logger.record(step, values)
        if last >= self.total:
            yield self._logger.closing(verl.validation(self.scenario.level(self.total).score))
        yield from [""] * REST
