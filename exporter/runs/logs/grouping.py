"""Put together what is one log in several files: a run's event files, a document per checkpoint.

What W&B captures of a console lies beside the file that holds all that was logged, and is left alone:
W&B replays it as a terminal, which rewrites lines and keeps no bar of a step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
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

_WANDB_FOLDERS = frozenset({"files", "logs"})

Order = tuple[int, str]


def is_part(path: str) -> bool:
    """Whether a file may belong to others, so that it matters however old it is."""
    name = path.rpartition("/")[2]
    return ".tfevents." in name or name == STATE_FILE or name.endswith(WANDB_FILE)


def gathered(found: Iterable[Found]) -> Iterator[Found]:
    """The logs that the files make up; a file that stands for itself passes as it is."""
    groups: dict[Path, list[tuple[Order, Found]]] = {}
    files = list(found)
    of_wandb = {file.path.parent for file in files if file.path.suffix == WANDB_FILE}
    for file in files:
        if of_wandb and _is_of_wandb(file.path, of_wandb):
            continue
        place = _place(file)
        if place is None:
            yield file
        else:
            groups.setdefault(place[0], []).append((place[1], file))
    for path, members in groups.items():
        yield _one(path, [file for _, file in sorted(members, key=lambda member: member[0])])


def _is_of_wandb(path: Path, folders: AbstractSet[Path]) -> bool:
    """Whether W&B captured it of the console, or it is W&B's own log, in one of these runs' folders."""
    if path.parent.name not in _WANDB_FOLDERS or path.parent.parent not in folders:
        return False
    return path.parent.name == "logs" or path.name == "output.log"


def _one(path: Path, files: list[Found]) -> Found:
    root = files[0].root
    return replace(
        files[-1],
        path=path,
        root=root if root in path.parents else path.parent,
        changed=max(file.changed for file in files),
        parts=tuple(file.path for file in files),
    )


def _place(file: Found) -> tuple[Path, Order] | None:
    """The log that a file is part of, and where it stands in it."""
    for place in _PLACES:
        if found := place(file.path):
            return found
    return None


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


_PLACES: tuple[Callable[[Path], tuple[Path, Order] | None], ...] = (_of_events, _of_checkpoint)
