"""Put together what is one log in several files: a run's event files, a document per checkpoint.

What W&B captures of a console lies beside the file that holds all that was logged, and is left alone:
W&B replays it as a terminal, which rewrites lines and keeps no bar of a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from exporter.runs.logs.find import Found
from exporter.runs.logs.names import WANDB_FILE

EVENT_FILE = re.compile(r"\.tfevents\.(\d*)")
"""TensorBoard knows event files by this; the number is when the file was begun."""

STATE_FILE = "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
START = re.compile(r"[A-Z][a-z]{2}\d{2}_\d{2}-\d{2}-\d{2}_")
"""Hugging Face's trainer has a folder for each start of a run: ``runs/Oct21_18-43-39_host``."""

Order = tuple[int, str]
"""Of a file among those of its log."""


def is_part(path: str) -> bool:
    """Whether a file may belong to others, so that it matters however old it is."""
    name = path.rpartition("/")[2]
    return ".tfevents." in name or name == STATE_FILE or name.endswith(WANDB_FILE)


def gathered(found: Iterable[Found]) -> Iterator[Found]:
    """The logs that the files make up; a file that is a log by itself is returned unchanged."""
    groups: dict[Path, list[tuple[Order, Found]]] = {}
    files = list(found)
    of_wandb = {file.path.parent for file in files if file.path.suffix == WANDB_FILE}
    for file in files:
        folder = file.path.parent
        # W&B's own log, or what it captured of the console.
        captured = folder.name == "logs" or (folder.name == "files" and file.path.name == "output.log")
        if captured and folder.parent in of_wandb:
            continue
        if place := _of_events(file.path) or _of_checkpoint(file.path):
            path, order = place
            groups.setdefault(path, []).append((order, file))
        else:
            yield file
    for path, members in groups.items():
        parts = [file for _, file in sorted(members, key=lambda member: member[0])]
        root = parts[0].root
        yield replace(
            parts[-1],
            path=path,
            root=root if root in path.parents else path.parent,
            changed=max(file.changed for file in parts),
            parts=tuple(file.path for file in parts),
        )


def _of_events(path: Path) -> tuple[Path, Order] | None:
    began = EVENT_FILE.search(path.name)
    if not began:
        return None
    folder = path.parent.parent if START.match(path.parent.name) else path.parent
    return folder / "tfevents", (int(began[1] or 0), str(path))


def _of_checkpoint(path: Path) -> tuple[Path, Order] | None:
    if path.name != STATE_FILE:
        return None
    number = CHECKPOINT.fullmatch(path.parent.name)
    if number is None:
        return path, (2**63, str(path))
    return path.parent.parent / STATE_FILE, (int(number[1]), str(path))
