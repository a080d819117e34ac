"""Simulated trainings that log all the time; some go sick on request."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import partial
from itertools import cycle
from pathlib import Path

from demo.scenario import Level, Scenario, healthy
from demo.trainer import LOGGERS, Trainer

STEP_SECONDS = 0.4
_SEED = 1
"""With these numbers a run that stays healthy raises nothing: tests/chaos/test_runs.py looks."""

SICK = "sick"
SILENCED = "silenced"
"""Goes sick as well, but was silenced before any fault: it comes on top of the five runs."""
LOCAL = ("healthy-1", "healthy-2", "healthy-3", SICK, SILENCED)
REMOTE = "remote/healthy-4"
"""Logs on a file server, whose mount may hang."""


class Runs(threading.Thread):
    """Trainers that log from ``start`` to ``stop``, in verl's two formats by turns.

    Args:
        folders: Where each run logs, by its name; of a name with folders in it the file has the last word.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        super().__init__(daemon=True)
        self.names = set(folders)
        self._sick_since: dict[str, int] = {}
        self._steps = 0
        self._stopped = threading.Event()
        self.trainers = [
            Trainer(
                Scenario(Path(name).name, logger, partial(self._level, name)), folder, _SEED, STEP_SECONDS
            )
            for logger, (name, folder) in zip(cycle(LOGGERS), folders.items())
        ]

    def sicken(self, *names: str) -> None:
        """Destroy the policy of these runs within some ten steps from now."""
        self._sick_since.update(dict.fromkeys(names, self._steps))

    def tick(self) -> None:
        """Log one step of each."""
        self._steps += 1
        for trainer in self.trainers:
            trainer.tick()

    def run(self) -> None:
        while not self._stopped.wait(STEP_SECONDS):
            self.tick()

    def stop(self) -> None:
        """Let all trainers hang up; their logs stay."""
        self._stopped.set()
        self.join()
        for trainer in self.trainers:
            trainer.close()

    def _level(self, name: str, step: int) -> Level:
        before = healthy(step)
        if name not in self._sick_since:
            return before
        away = 1 - math.exp(min(0, self._sick_since[name] - step) / 3)
        return before._replace(score=before.score * (1 - 0.95 * away), kl=before.kl + 8 * away)
