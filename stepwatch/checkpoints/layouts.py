"""Where trainers save checkpoints, and by what a complete one is known."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
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

_MOST_JSON = 64 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".distcp")
_NO_WEIGHTS = re.compile(
    r"(^|/)((data|optimizer|scheduler|scaler|rng_state[^/]*)\.(pt|pth)|training_args\.bin)\Z"
)
_INTERPOLATED = re.compile(r"\$\{(?:oc\.env:)?([\w.]+)\}")
_VERL_NAMES = {"trainer.project_name": "verl_examples", "trainer.experiment_name": "gsm8k"}


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

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(size for _, size, _ in self.files.values())


def folder(command: Sequence[str], working: Path) -> Path | None:
    """Return where the trainer of a command line in this folder saves checkpoints, if that is known."""
    named = dict(_named(command))
    place = next((named[key] for key in _KEYS if named.get(key)), None)
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


_KEYS = (
    "trainer.default_local_dir",  # verl
    "checkpointing.checkpoint_dir",  # NeMo-RL
    "output_dir",  # Transformers, and with it TRL
    "save",  # Megatron, and with it slime
)


def _named(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield keys and values of a command line, as argparse and Hydra take them."""
    for word, after in zip(command, [*command[1:], ""], strict=True):
        key, given, value = word.partition("=")
        if word.startswith("--"):
            value = value if given else "" if after.startswith("--") else after
            yield key[2:].replace("-", "_"), value.strip("'\"")
        elif given:
            yield key.lstrip("+"), value.strip("'\"")


def found(place: Path) -> list[Checkpoint]:
    """Return what lies in a trainer's folder under the name of a checkpoint, by step, complete or not."""
    checkpoints = []
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            name = next((match for each in _LAYOUTS if (match := each.fullmatch(entry.name))), None)
            if name and entry.is_dir(follow_symlinks=False):
                checkpoints.append(Checkpoint(place / entry.name, int(name[1]), files(place / entry.name)))
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
    saved = next(rule for name, rule in _LAYOUTS.items() if name.fullmatch(checkpoint.name))
    return saved(checkpoint) and _has_weights(checkpoint)


def _tracked(checkpoint: Checkpoint) -> bool:
    """A later checkpoint is saved only after an earlier one, so those below the last are complete as well."""
    with suppress(OSError, ValueError):
        return int((checkpoint.path.parent / TRACKER).read_text("utf-8")) >= checkpoint.step
    return False


def _of_transformers(checkpoint: Checkpoint) -> bool:
    state = _json(checkpoint.path / "trainer_state.json")
    # The other file is there while `enable_jit_checkpoint` saves.
    begun = "checkpoint-is-incomplete.txt" in checkpoint.files
    return not begun and isinstance(state, dict) and state.get("global_step") == checkpoint.step


_LAYOUTS: Mapping[re.Pattern[str], Callable[[Checkpoint], bool]] = {
    re.compile(r"global_step_(\d+)"): _tracked,
    re.compile(r"iter_(\d{7})"): _tracked,
    re.compile(r"checkpoint-(\d+)"): _of_transformers,
    # NeMo-RL's gets its name once it is complete.
    re.compile(r"step_(\d+)"): lambda checkpoint: "training_info.json" in checkpoint.files,
}


def _has_weights(checkpoint: Checkpoint) -> bool:
    """Whether it has weights, and all parts of what is saved in parts."""
    listed = checkpoint.files
    weights = [path for path in listed if path.endswith(_WEIGHTS) and not _NO_WEIGHTS.search(path)]
    indices = [path for path in listed if path.endswith(".index.json")]
    return (
        bool(weights)
        and all(listed[path][1] for path in weights)
        and all(_has_shards(checkpoint, index) for index in indices)
        and all(_has_header(checkpoint.path / path) for path in weights if path.endswith(".safetensors"))
        and _has_ranks(listed)
        and all(
            f"{path.rpartition('/')[0]}/.metadata".lstrip("/") in listed
            for path in weights
            if path.endswith(".distcp")
        )
    )


def _has_shards(checkpoint: Checkpoint, index: str) -> bool:
    content = _json(checkpoint.path / index)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict):
        return False
    above = index.rpartition("/")[0]
    return all(f"{above}/{shard}".lstrip("/") in checkpoint.files for shard in set(shards.values()))


def _has_header(path: Path) -> bool:
    """Whether a file of safetensors is as long as its header says."""
    with suppress(OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _MOST_JSON)))
            size = os.fstat(file.fileno()).st_size
        ends = (part["data_offsets"][1] for name, part in header.items() if name != "__metadata__")
        return size == 8 + length + max(ends, default=0)
    return False


def _has_ranks(listed: Files) -> bool:
    """Whether of each family of files that ranks save there is one of every rank."""
    ranks: dict[tuple[str, int], set[int]] = {}
    for path in listed:
        if part := re.fullmatch(r"(?P<family>.+)_world_size_(?P<size>\d+)_rank_(?P<rank>\d+)\.pt", path):
            ranks.setdefault((part["family"], int(part["size"])), set()).add(int(part["rank"]))
    return all(found == set(range(size)) for (_, size), found in ranks.items())


def _json(path: Path) -> Any:
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
        return json.loads(file.read(_MOST_JSON))
    return None
