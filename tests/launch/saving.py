"""Checkpoints as trainers write them, in their order, with small weights."""

from __future__ import annotations

import json
import os
from pathlib import Path

from stepwatch.launch import layouts
from stepwatch.launch.layouts import TRACKER, Checkpoint

SIZE = 1000
"""Bytes of a file of weights."""


def verl(folder: Path, step: int, *, ranks: int = 2, size: int = SIZE) -> Path:
    """What verl saves with FSDP: the ranks' shards, the data's state, then the step in the tracker."""
    place = folder / f"global_step_{step}"
    (place / "actor" / "huggingface").mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        for kind in ("model", "optim", "extra_state"):
            (place / "actor" / f"{kind}_world_size_{ranks}_rank_{rank}.pt").write_bytes(os.urandom(size))
    (place / "actor" / "huggingface" / "config.json").write_text("{}")
    (place / "data.pt").write_bytes(b"data")
    (folder / TRACKER).write_text(str(step))
    return place


def safetensors(size: int) -> bytes:
    """A file with one tensor of so many bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + os.urandom(size)


def transformers(folder: Path, step: int, *, size: int = SIZE) -> Path:
    """What Transformers saves: shards, their index, the optimizer's state, and its own state at the end."""
    place = folder / f"checkpoint-{step}"
    place.mkdir(parents=True, exist_ok=True)
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for shard in shards:
        (place / shard).write_bytes(safetensors(size))
    weights = {"a": shards[0], "b": shards[1]}
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    (place / "optimizer.pt").write_bytes(os.urandom(size))
    (place / "rng_state.pth").write_bytes(b"rng")
    (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    return place


def checkpoint(folder: Path, name: str) -> Checkpoint:
    """One of a trainer's folder, as it is now."""
    return next(each for each in layouts.found(folder) if each.name == name)


def contents(place: Path) -> dict[str, bytes]:
    """The content of each file of a folder."""
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}
