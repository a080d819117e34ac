"""Where trainers save checkpoints, and by what a complete one is known."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Files = dict[str, tuple[int, int, int]]
"""Of a folder, by their paths below it: inode, size in bytes, and time of the last change in nanoseconds."""
TRACKER = "latest_checkpointed_iteration.txt"
"""verl and Megatron write the last saved step into it once all of that checkpoint is saved."""
NOT_REGULAR = -1
"""In place of the size of a link, device or pipe."""

_NAMES = re.compile(r"global_step_(\d+)|iter_(\d{7})|checkpoint-(\d+)|step_(\d+)")
"""Of verl, of Megatron and slime, of Transformers and TRL, of NeMo-RL."""
_FOLDERS = (
    "trainer.default_local_dir",  # verl
    "checkpointing.checkpoint_dir",  # NeMo-RL
    "output_dir",  # Transformers, and with it TRL
    "save",  # Megatron, and with it slime
)
_INTERPOLATED = re.compile(r"\$\{(?:oc\.env:)?([\w.]+)\}")
_VERL_NAMES = {"trainer.project_name": "verl_examples", "trainer.experiment_name": "gsm8k"}
_MOST_JSON = 64 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".distcp")
_NO_WEIGHTS = re.compile(
    r"(^|/)((data|optimizer|scheduler|scaler|rng_state[^/]*)\.(pt|pth)|training_args\.bin)\Z"
)
_RANK = re.compile(r"(.+)_world_size_(\d+)_rank_(\d+)\.pt")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it lies there: its folder, the step after which it was saved, and its files."""

    path: Path
    step: int
    files: Files

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.name


def folder(command: Sequence[str], working: Path) -> Path | None:
    """Return where the trainer of a command line in this folder saves checkpoints, if that is known."""
    named: dict[str, str] = {}
    for word, after in zip(command, [*command[1:], ""], strict=True):  # as argparse and Hydra take them
        key, given, value = word.partition("=")
        if word.startswith("--"):
            value = value if given else "" if after.startswith("--") else after
            named[key[2:].replace("-", "_")] = value.strip("'\"")
        elif given:
            named[key.lstrip("+")] = value.strip("'\"")
    place = next((named[key] for key in _FOLDERS if named.get(key)), None)
    if place is None and any("verl.trainer" in word for word in command):
        place = "checkpoints/${trainer.project_name}/${trainer.experiment_name}"
    if place is None:
        return None
    place = _INTERPOLATED.sub(lambda found: named.get(found[1]) or _VERL_NAMES.get(found[1], found[0]), place)
    path = Path(os.path.expanduser(place))  # noqa: PTH111  (a text)
    submitted = "job" in command and "submit" in command  # runs elsewhere
    if "$" in place or (submitted and not path.is_absolute()):
        return None
    return Path(os.path.normpath(working / path))


def found(place: Path) -> list[Checkpoint]:
    """Return what lies in a trainer's folder under the name of a checkpoint, by step, complete or not."""
    checkpoints = []
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            name = _NAMES.fullmatch(entry.name)
            if name and entry.is_dir(follow_symlinks=False):
                step = int(next(filter(None, name.groups())))
                checkpoints.append(Checkpoint(place / entry.name, step, files(place / entry.name)))
    return sorted(checkpoints, key=lambda each: (each.step, each.name))


def files(place: Path) -> Files:
    """Return what a folder holds; nothing that goes while it is listed."""
    listed: Files = {}
    for above, folders, names in os.walk(place):
        for name in (*names, *(each for each in folders if os.path.islink(os.path.join(above, each)))):  # noqa: PTH114, PTH118  (thousands)
            path = os.path.join(above, name)  # noqa: PTH118
            with suppress(OSError):
                status = os.lstat(path)
                size = status.st_size if stat.S_ISREG(status.st_mode) else NOT_REGULAR
                listed[os.path.relpath(path, place)] = status.st_ino, size, status.st_mtime_ns
    return listed


def is_whole(checkpoint: Checkpoint) -> bool:
    """Whether the trainer has saved all of a checkpoint, as far as its files tell."""
    path, listed = checkpoint.path, checkpoint.files
    kind = checkpoint.name.rpartition("-" if "-" in checkpoint.name else "_")[0]
    if kind == "checkpoint":
        state = _json(path / "trainer_state.json")
        # The other file is there while `enable_jit_checkpoint` saves.
        begun = "checkpoint-is-incomplete.txt" in listed
        saved = not begun and isinstance(state, dict) and state.get("global_step") == checkpoint.step
    elif kind == "step":  # NeMo-RL's gets its name once it is complete
        saved = "training_info.json" in listed
    else:
        # A later checkpoint is saved only after an earlier one, so those below the last are complete as well.
        saved = False
        with suppress(OSError, ValueError):
            saved = int((path.parent / TRACKER).read_text("utf-8")) >= checkpoint.step
    weights = [file for file in listed if file.endswith(_WEIGHTS) and not _NO_WEIGHTS.search(file)]
    linked = any(size == NOT_REGULAR for _, size, _ in listed.values())  # to what may change
    if linked or not saved or not weights or not all(listed[file][1] for file in weights):
        return False
    for index in (file for file in listed if file.endswith(".index.json")):
        content = _json(path / index)
        shards = content.get("weight_map") if isinstance(content, dict) else None
        above = index.rpartition("/")[0]
        if (
            not isinstance(shards, dict)
            or {f"{above}/{one}".lstrip("/") for one in shards.values()} - listed.keys()
        ):
            return False
    ranks: dict[tuple[str, int], set[int]] = {}
    for part in filter(None, map(_RANK.fullmatch, listed)):
        ranks.setdefault((part[1], int(part[2])), set()).add(int(part[3]))
    return all(found == set(range(size)) for (_, size), found in ranks.items())


def _json(path: Path) -> Any:
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
        return json.loads(file.read(_MOST_JSON))
    return None
