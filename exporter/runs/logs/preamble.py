"""A text without a record whose trainer failed or was killed before its first step: that is a run, too."""

from __future__ import annotations

from exporter.runs.model.lifecycle import TRACEBACK_SECONDS
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Ended, Event


class Preamble:
    """What a text said so far, as a run without a step.

    ``failed`` is when it last reported an error, in seconds of the steady clock.
    """

    def __init__(self, options: Options) -> None:
        self.run = Run("text", "", options)
        self.failed = 0.0

    def take(self, event: Event, clock: Clock) -> None:
        """Take one thing that the text says."""
        self.run.take(event, clock)
        self.run.watched = self.run.watched or clock.live
        if isinstance(event, Ended):
            self.failed = clock.moved(None)

    def is_end(self, state: str, grew: float, *, writer: bool | None) -> bool:
        """Is the state that the run seems to be in an end that someone should know of?

        A program that ends without an error has done what it should, unless it is known to be a trainer.
        An error after which the text grew for long was caught. Of a writer that cannot be seen,
        silence is no news before the first step, and only a trainer's error is an end.

        Args:
            state: Of the run, by its words, its writer and its silence.
            grew: When the text last grew, in seconds of the steady clock.
            writer: Is the writer there; ``None`` if it cannot be seen.
        """
        run = self.run
        is_trainer = run.total is not None or bool(run.servers)
        if state == "failed" and run.ended:
            ended_with_it = grew - self.failed <= TRACEBACK_SECONDS
            return run.ended.certain or (ended_with_it and (is_trainer or writer is False))
        return state in ("vanished", "stopped") and is_trainer and writer is False
