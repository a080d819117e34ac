"""A simulated trainer of verl: its console, its checkpoints, its resuming, and the fault that is asked for.

``python -m tests.actions.verl FAULT trainer.default_local_dir=DIR data.train_batch_size=512 ...``
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from tests.launch import saving
from tests.runs.lines import console, measured

PACE_SECONDS = 0.3
SAVE_EVERY = 10
AT = 12
"""The step after which something happens; before it, another one was saved."""
CALM = 30
"""Steps before KL explodes: it is judged by how the run began."""


class CudaOomError(RuntimeError):
    """Is printed as PyTorch's own."""

    __module__, __qualname__ = "torch", "OutOfMemoryError"


def runs_out_of_memory(arguments: dict[str, str]) -> None:
    """A batch of more than 256 does not fit."""
    if int(arguments["data.train_batch_size"]) > 256:
        raise CudaOomError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
            "which 1.19 GiB is free."
        )


def loses_the_network(arguments: dict[str, str]) -> None:
    """The reward server is away once."""
    away = Path(arguments["trainer.default_local_dir"], "was-away")
    if not away.exists():
        away.touch()
        socket.create_connection(("127.0.0.1", 1))


def hangs(_: dict[str, str]) -> None:
    """As in a collective operation whose other ranks never come."""
    while True:
        time.sleep(3600)


def nothing(_: dict[str, str]) -> None:
    """What is to happen comes from outside, or from the numbers."""


FAULTS: dict[str, Callable[[dict[str, str]], None]] = {
    "oom": runs_out_of_memory,
    "network": loses_the_network,
    "hang": hangs,
    "explode": nothing,
    "killed": nothing,
    "healthy": nothing,
}


def resumed(folder: Path) -> int:
    """The step to go on from, said as verl says it."""
    newest = folder / saving.TRACKER
    if not newest.exists():
        print("Training from scratch", flush=True)
        return 0
    step = int(newest.read_text())
    place = folder / f"global_step_{step}"
    print(
        f"Load from checkpoint folder: {place}\nSetting global step to {step}\nResuming from {place}",
        flush=True,
    )
    return step


def main() -> None:
    fault, *words = sys.argv[1:]
    arguments = dict(word.split("=", 1) for word in words)
    folder = Path(arguments["trainer.default_local_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    step = resumed(folder)
    begun = time.monotonic() - step * PACE_SECONDS
    while True:
        step += 1
        if step == AT + 1:
            FAULTS[fault](arguments)
        kl = min(20.0, 2.0 * (step - CALM)) if fault == "explode" and step > CALM else None
        # Logs with the same numbers would be taken for one run.
        norm = 1.0 + step % 4 / 10 + crc32(folder.name.encode()) % 1000 / 10000
        values = measured(step, grad_norm=norm, **({"kl": kl} if kl else {}))
        with contextlib.suppress(ValueError):
            time.sleep(begun + step * PACE_SECONDS - time.monotonic())
        if step % SAVE_EVERY == 0:
            saving.verl(folder, step)
        sys.stdout.write(console(step, values))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
