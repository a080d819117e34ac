"""Names of runs, from the paths of their logs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path, PurePath

GENERIC_STEMS = frozenset({"output", "metrics", "trainer_state", "verl_logs", "train", "tfevents"})
GENERIC_FOLDERS = frozenset({"files", "logs"})
"""Folders that W&B and trainers put between a run's folder and its log."""
EVENT_FOLDERS = frozenset({"runs", "tensorboard", "tb"})
"""Folders that trainers put around event files."""
COMPRESSED = ".gz"
WANDB_FILE = ".wandb"
"""Of W&B's run, whose folder has the time of its start and its id."""
REMEMBERED = 10_000
"""Paths whose names are remembered: those of all logs are asked for at every look."""


@lru_cache(REMEMBERED)
def run_name(path: PurePath) -> str:
    """The name of the run whose log has this path below the watched folder.

    ``ppo/gsm8k.jsonl`` -> ``ppo/gsm8k``; a stem that says nothing gives way to its folder:
    ``wandb/run-1-abc/files/output.log`` -> ``run-1-abc``.
    """
    path = path.with_suffix("") if path.suffix == COMPRESSED else path
    if path.suffix == WANDB_FILE and path.parent.name:
        return printable(PurePath(path.parent.name))
    if path.stem not in GENERIC_STEMS:
        return printable(path.with_suffix(""))
    folders = home(path).parts
    if path.parent.name in GENERIC_FOLDERS:
        folders = folders[-1:]
    return printable(PurePath(*folders) if folders else PurePath(path.stem))


@lru_cache(REMEMBERED)
def home(path: PurePath) -> PurePath:
    """The run's own folder: what is above the folders that trainers and trackers make in it."""
    folders = [part for part in path.parent.parts if part not in GENERIC_FOLDERS]
    while folders and folders[-1] in EVENT_FOLDERS:
        folders.pop()
    return PurePath(*folders)


def run_names(logs: Mapping[Path, PurePath]) -> dict[Path, str]:
    """A name of its own for each log; ``logs`` maps its path to the one below the watched folder.

    Logs that lead to one name are distinguished by their paths below the folder, or if need be by
    their whole paths.
    """
    names = {path: run_name(relative) for path, relative in logs.items()}
    for longer in (logs.__getitem__, Path.absolute):
        taken = shared(names.values())
        names = {path: printable(longer(path)) if name in taken else name for path, name in names.items()}
    return names


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The three names, or fewer, that look most like this one; the likeliest first."""
    return get_close_matches(name, list(known), n=3, cutoff=0.0)


def shared(names: Iterable[str]) -> frozenset[str]:
    """Names that are there more than once."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def printable(path: PurePath) -> str:
    """The path as UTF-8 text, whatever bytes the file system holds."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
