"""The watcher as the wrapper sees it: a process started with the trainer, and asked to end after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from stepwatch.checkpoints import layouts
from stepwatch.checkpoints.order import ROOT, Order
from stepwatch.schema.errors import Refused

LAST_SECONDS = 60.0
"""For the last look, after the trainer: no rotation is to be feared any more, so this may be cut short."""


@contextmanager
def watched(order: Order | None) -> Iterator[Callable[[], set[str]] | None]:
    """Have the checkpoints of a trainer watched meanwhile; without an order, do nothing.

    It has a session of its own, so that Ctrl-C does not reach it. If the wrapper dies, the kernel kills it.

    Yields:
        What lists the names of those that are there, complete or not; ``None`` where they are not watched.
    """
    if order is None:
        yield None
        return
    wakes, trainer_runs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "stepwatch.checkpoints", "watch", str(os.getpid())],
        stdin=wakes,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(wakes)
    with suppress(OSError):
        os.write(trainer_runs, f"{json.dumps(asdict(order))}\n".encode())
    try:
        yield lambda: {each.name for each in layouts.found(Path(order.folder))}
    finally:
        os.close(trainer_runs)
        try:
            process.wait(LAST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Saving:
    """Options about checkpoints on the command line.

    Attributes:
        folder: Where the trainer saves them; ``None`` for where its command line says.
        keep: How many of the best are kept; ``None`` for as many as config.yaml says.
        config: In place of the usual config.yaml.
    """

    folder: Path | None = None
    keep: int | None = None
    config: Path | None = None

    def watched(
        self, command: Sequence[str], log: Path, runs: Path
    ) -> AbstractContextManager[Callable[[], set[str]] | None]:
        """Have its checkpoints watched meanwhile; arguments and errors are those of `order`."""
        return watched(self.order(command, log, runs))

    def order(self, command: Sequence[str], log: Path, runs: Path) -> Order | None:
        """Return what to watch; ``None`` if the trainer's checkpoint folder is unknown.

        Args:
            command: The trainer and its arguments.
            log: The run's log.
            runs: The folder of logs.

        Raises:
            Refused: Checkpoints should be kept, but their folder is unknown.
        """
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
