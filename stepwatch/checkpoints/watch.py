"""The watcher: looks at a trainer's folder, notes what is complete, and has the best kept."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from exporter.runs.files import launch
from exporter.runs.files.launch import MOST_CHECKPOINTS, SavedStep
from stepwatch.checkpoints import layouts
from stepwatch.checkpoints.layouts import Checkpoint
from stepwatch.checkpoints.order import ROOT, Order

LOOK_SECONDS = 2.0
"""Between two looks; longer where a look takes long, so that it takes at most 2 % of a core."""
SHARE = 50
AGAIN_SECONDS, MOST_AGAIN_SECONDS = 10.0, 600.0
"""Until what could not be scored yet is tried again, twice as long each time."""


class _Seen:
    """A checkpoint over the looks at it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = replace(checkpoint, files={})  # so that the first look settles nothing
        self.settled = self.shrinks = False

    def look(self, now: Checkpoint, *, ended: bool) -> None:
        """Take another look: complete is what is whole and was left alone since the last one."""
        before = self.checkpoint.files
        if now.files != before:
            if before.keys() - now.files.keys() and (self.settled or self.shrinks):
                self.shrinks = True  # the rotation is about to delete all of it
            elif now.files.keys() - before.keys():
                self.shrinks = False
            self.settled, self.checkpoint = False, now
        elif not self.shrinks:
            self.settled = self.settled or layouts.is_whole(now)
        if ended and not self.settled and not self.shrinks:
            self.settled = layouts.is_whole(now)


class Watcher:
    """Over one run of the wrapper."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._seen: dict[str, _Seen] = {}
        self._noted: list[SavedStep] | None = None
        self._wanted = True
        self._judged: object = None
        self._again, self._due = AGAIN_SECONDS, float("inf")
        self._kept: list[SavedStep] = []
        self._place = Path()
        self._said: set[str] = set()

    def look(self, *, ended: bool = False) -> float:
        """Look at the folder once, and do what follows.

        Returns:
            Seconds that the look took, without what followed.
        """
        begun = time.monotonic()
        there = layouts.found(Path(self._order.folder))
        self._seen = {each.name: self._seen.get(each.name) or _Seen(each) for each in there}
        for each in there:
            self._seen[each.name].look(each, ended=ended)
        complete = [seen.checkpoint for seen in self._seen.values() if seen.settled]
        self._note(complete)
        state = [(each.name, each.files) for each in complete], self._places()
        took = time.monotonic() - begun
        due = state != self._judged or time.monotonic() > self._due or (ended and self._due < float("inf"))
        if self._wanted and due and (complete or self._kept):
            if state != self._judged:
                self._again = AGAIN_SECONDS
            self._keep(complete, ended=ended)
            self._judged = state[0], self._places()
            self._note(complete)
        return took

    def _places(self) -> dict[str, layouts.Files]:
        """What is kept, as it is now: a trainer that saves a step again may write through a hard link."""
        return {each.name: layouts.files(self._place.parent / each.name) for each in self._kept}

    def _note(self, complete: Sequence[Checkpoint]) -> None:
        own = [SavedStep(each.name, each.step) for each in complete]
        names = {each.name for each in own}
        kept = [each for each in self._kept if each.name.rpartition("/")[2] not in names]
        found = sorted([*kept, *own[-(MOST_CHECKPOINTS - len(kept)) :]], key=lambda each: each.step)
        if found != self._noted and (found or self._noted):
            with suppress(OSError):
                launch.write_checkpoints(Path(self._order.log), found)
                self._noted = found

    def _keep(self, complete: Sequence[Checkpoint], *, ended: bool) -> None:
        order = asdict(replace(self._order, ended=ended))
        listed = [(each.name, each.step, each.files) for each in complete]
        done = subprocess.run(
            [sys.executable, "-m", "stepwatch.checkpoints", "keep", str(os.getpid())],
            input=json.dumps({"order": order, "complete": listed}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            check=False,
        )
        result: dict[str, Any] = {}
        with suppress(ValueError):
            result = json.loads(done.stdout)
        if done.returncode or not result:
            self._say("no best checkpoint was kept: the process that does so failed.")
            result = {"wanted": 1, "pending": True, "says": [], "kept": [], "place": ""}
        self._wanted = bool(result["wanted"])
        self._place = Path(result["place"])
        self._kept = [SavedStep(f"{self._place.name}/{name}", step) for name, step in result["kept"]]
        for text in result["says"]:
            self._say(text)
        self._due = time.monotonic() + self._again if result["pending"] else float("inf")
        self._again = min(2 * self._again, MOST_AGAIN_SECONDS)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            with suppress(OSError):
                os.write(2, f"stepwatch run: {text}\n".encode())


def watch(order: Order, ends: int) -> None:
    """Look again and again until the trainer has ended, and then once more.

    Args:
        order: What to watch.
        ends: A file descriptor that ends with the trainer.
    """
    watcher = Watcher(order)
    ended = False
    while not ended:
        wait = max(LOOK_SECONDS, SHARE * watcher.look())
        ended = bool(select.select([ends], [], [], wait)[0])
    watcher.look(ended=True)
