"""The watcher of a trainer's checkpoints, and how the wrapper starts it and asks it to end."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from exporter.runs.files import launch
from exporter.runs.files.launch import MOST_CHECKPOINTS, SavedStep
from stepwatch.checkpoints import layouts
from stepwatch.checkpoints.layouts import Checkpoint
from stepwatch.schema.errors import Refused

ROOT = Path(__file__).parents[2]
"""Working folder of these processes: not the trainer's, whose modules might have our names."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Order:
    """What to watch, and how many checkpoints to keep (``None``: as config.yaml says)."""

    log: str
    run: str
    folder: str
    keep: int | None = None
    config: str = ""
    ended: bool = False


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process once the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # too late
        os.kill(os.getpid(), signal.SIGKILL)


LAST_SECONDS = 60.0
"""For the last look, after the trainer: no rotation is to be feared any more, so this may be cut short."""


@dataclass(frozen=True)
class Saving:
    """Options about checkpoints on the command line; ``None`` for what the trainer's and config.yaml say."""

    folder: Path | None = None
    keep: int | None = None
    config: Path | None = None

    @contextmanager
    def watched(self, command: Sequence[str], log: Path, runs: Path) -> Iterator[None]:
        """Have a trainer's checkpoints watched meanwhile, in a session that Ctrl-C does not reach."""
        order = self.order(command, log, runs)
        if order is None:
            yield
            return
        wakes, trainer_runs = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "stepwatch.checkpoints.watcher", str(os.getpid())],
            stdin=wakes,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
        )
        os.close(wakes)
        with suppress(OSError):
            os.write(trainer_runs, f"{json.dumps(asdict(order))}\n".encode())
        try:
            yield
        finally:
            os.close(trainer_runs)
            try:
                process.wait(LAST_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def order(self, command: Sequence[str], log: Path, runs: Path) -> Order | None:
        """Return what to watch; ``None`` if the trainer's checkpoint folder is unknown. Raises Refused."""
        folder = self.folder or layouts.folder(command, Path.cwd())
        if folder is None:
            if self.keep:
                raise Refused(
                    "--keep-best: the trainer's command line does not say where it saves checkpoints. "
                    "Fix: name the folder with --checkpoints."
                )
            return None
        run = str(log.relative_to(runs).with_suffix(""))
        config = str(self.config.absolute()) if self.config else ""
        return Order(str(log.absolute()), run, str(folder.absolute()), self.keep, config)


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
        """Look at the folder once, and do what follows; returns the seconds of the look itself."""
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
            [sys.executable, "-m", "stepwatch.checkpoints.keeping", str(os.getpid())],
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
    """Look until the trainer has ended, with which the file descriptor ``ends`` does, and then once more."""
    watcher = Watcher(order)
    ended = False
    while not ended:
        wait = max(LOOK_SECONDS, SHARE * watcher.look())
        ended = bool(select.select([ends], [], [], wait)[0])
    watcher.look(ended=True)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    watch(Order(**json.loads(sys.stdin.readline())), sys.stdin.fileno())
