"""What the paths of logs say: which files are one log, and the name of its run.

One log in several files are a run's event files, or a document per checkpoint. What W&B captures of a console
lies beside the file that holds all that was logged, and is left alone once that has a step: W&B replays it as
a terminal, which rewrites lines and keeps no bar of a step.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path, PurePath

from exporter.runs.formats.trackers import WandbFile
from exporter.runs.logs.find import Found
from exporter.runs.model.same import GENERIC_FOLDERS, REMEMBERED, home
from exporter.runs.readers.content import reader_of

GENERIC_STEMS = frozenset({"output", "metrics", "trainer_state", "verl_logs", "train", "tfevents"})
COMPRESSED = ".gz"
WANDB_FILE = ".wandb"  # of W&B's run, whose folder has the time of its start and its id


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


EVENT_FILE = re.compile(r"\.tfevents\.(\d*)")
"""TensorBoard knows event files by this; the number is when the file was begun."""
STATE_FILE = "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
START = re.compile(r"[A-Z][a-z]{2}\d{2}_\d{2}-\d{2}-\d{2}_")
"""Hugging Face's trainer has a folder for each start of a run: ``runs/Oct21_18-43-39_host``."""
Order = tuple[int, str]  # of a file among those of its log


def is_part(path: str) -> bool:
    """Whether a file may belong to others, so that it matters however old it is."""
    name = path.rpartition("/")[2]
    return ".tfevents." in name or name == STATE_FILE or name.endswith(WANDB_FILE)


def console_of(wandb_file: Path) -> Path:
    """Where W&B captures the console of the run of this file."""
    return wandb_file.parent / "files/output.log"


@lru_cache(REMEMBERED)
def has_step(wandb_file: Found) -> bool:
    """Whether W&B has written a step to its file: it writes 32 KiB at a time, and a kill takes the rest."""
    reader = reader_of("wandb", lambda: wandb_file.parts)
    with suppress(OSError):
        while block := reader.poll(0.0):
            if any(map(WandbFile().recognises, block.lines)):
                return True
            if not block.more:
                break
    return False


def gathered(found: Iterable[Found], stepped: Callable[[Found], bool] = has_step) -> Iterator[Found]:
    """The logs that the files make up; a file that is a log by itself is returned unchanged.

    ``stepped`` says of W&B's file whether it has a step.
    """
    groups: dict[Path, list[tuple[Order, Found]]] = {}
    files = list(found)
    of_wandb = {file.path.parent: file for file in files if file.path.suffix == WANDB_FILE}
    for file in files:
        folder = file.path.parent
        of_run = of_wandb.get(folder.parent)
        # W&B's own log, or what it captured of the console.
        if of_run and (folder.name == "logs" or (file.path == console_of(of_run.path) and stepped(of_run))):
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
