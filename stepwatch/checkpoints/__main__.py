"""What the wrapper and its watcher start: ``python -m stepwatch.checkpoints watch|keep``."""
# ruff: noqa: PLC0415 - the watcher lives as long as the training, and needs little of it

from __future__ import annotations

import json
import sys
from pathlib import Path

from stepwatch.checkpoints.layouts import Checkpoint
from stepwatch.checkpoints.order import Order, end_with_parent


def main(role: str, parent: int) -> None:
    """Watch until standard input ends, or keep what standard input lists."""
    end_with_parent(parent)
    if role == "watch":
        from stepwatch.checkpoints.watch import watch

        watch(Order(**json.loads(sys.stdin.readline())), 0)
        return
    from dataclasses import asdict

    from stepwatch.checkpoints.keeping import keep

    given = json.load(sys.stdin)
    order = Order(**given["order"])
    complete = [
        Checkpoint(Path(order.folder) / name, step, {path: tuple(facts) for path, facts in files.items()})
        for name, step, files in given["complete"]
    ]
    sys.stdout.write(json.dumps(asdict(keep(order, complete))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
