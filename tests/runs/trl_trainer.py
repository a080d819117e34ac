"""What a Hugging Face trainer writes, by the real tqdm as transformers' ProgressCallback uses it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from unittest.mock import patch

from tqdm import std
from tqdm.std import tqdm


class Output(io.StringIO):
    """A trainer's standard output: of what it writes, up to ``buffer`` characters are not in the log yet."""

    def __init__(self, log: io.StringIO, buffer: int) -> None:
        super().__init__()
        self._log, self._buffer, self._held = log, buffer, ""
        self.written = 0

    def write(self, text: str) -> int:
        self._held += text
        self.written += len(text)
        if len(self._held) > self._buffer:
            size = len(self._held) - len(self._held) % (self._buffer or 1)
            self._log.write(self._held[:size])
            self._held = self._held[size:]
        return len(text)

    @property
    def arrived(self) -> int:
        """How many of the characters are in the log."""
        return self.written - len(self._held)

    def end(self) -> None:
        """The process ends by itself: what is in the buffer is written."""
        self._log.write(self._held)
        self._held = ""


@dataclass
class Training:
    """One start of a trainer.

    ``checkpoint`` is the step it resumes after, ``killed_at`` the one after which it is killed (-9).
    A step takes the next of ``seconds``, again and again. ``buffer``: characters of standard output that
    reach the log late; 0 if it is not buffered.
    """

    max_steps: int
    logging_steps: int = 1
    checkpoint: int = 0
    killed_at: int | None = None
    logging_first_step: bool = False
    eval_steps: int | None = None
    seconds: Sequence[float] = (1.0,)
    buffer: int = 0
    logged: list[int] = field(default_factory=list)
    """The steps of the records that reached the log."""
    pauses: list[int] = field(default_factory=list)
    """Where the log ended after each step."""

    def write(self, log: io.StringIO) -> None:
        """Append to the log what the trainer prints."""
        now, ends = [0.0], dict[int, int]()
        with _output(log, self.buffer) as stdout, patch.object(std, "time", lambda: now[0]):
            bar = tqdm(total=self.max_steps, dynamic_ncols=True)
            for step in range(self.checkpoint + 1, self.max_steps + 1):
                now[0] += self.seconds[step % len(self.seconds)]
                bar.update(step - bar.n)
                if step % self.logging_steps == 0 or (step == 1 and self.logging_first_step):
                    bar.write(_record(step))
                    ends[step] = stdout.written - len("\n")
                if self.eval_steps and step % self.eval_steps == 0:
                    _evaluate(step, bar)
                self.pauses.append(len(log.getvalue()))
                if step == self.killed_at:
                    bar.fp = io.StringIO()  # a process that is killed closes no bar
                    bar.close()
                    break
            else:
                bar.write(str({"train_runtime": "915.6", "train_loss": "0.0048", "epoch": "1"}))
                bar.close()
                stdout.end()
            self.logged = [step for step, end in ends.items() if end <= stdout.arrived]


def _record(step: int) -> str:
    return str({"loss": f"{step / 7:.4g}", "reward": f"{step / 3:.4g}", "epoch": f"{step / 100:.4g}"})


def _evaluate(step: int, bar: tqdm) -> None:
    prediction = tqdm(total=4, leave=False, dynamic_ncols=True)
    for _ in range(4):
        prediction.update(1)
    bar.write(str({"eval_loss": f"{step / 9:.4g}", "epoch": f"{step / 100:.4g}"}))
    prediction.close()


@contextmanager
def _output(log: io.StringIO, buffer: int) -> Iterator[Output]:
    stdout = Output(log, buffer)
    with redirect_stderr(log), redirect_stdout(stdout), patch.object(tqdm, "monitor_interval", 0):
        assert sys.stderr is log
        yield stdout
