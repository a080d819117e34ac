"""Names of runs, from the paths of their logs."""

from __future__ import annotations

from pathlib import PurePath

GENERIC_STEMS = frozenset({"output", "metrics", "trainer_state", "verl_logs", "train"})
GENERIC_FOLDERS = frozenset({"files", "logs"})
"""Folders that W&B and trainers put between a run's folder and its log."""


def run_name(path: PurePath) -> str:
    """The name of the run whose log has this path below the watched folder.

    ``ppo/gsm8k.jsonl`` -> ``ppo/gsm8k``; a stem that says nothing gives way to its folder:
    ``wandb/run-1-abc/files/output.log`` -> ``run-1-abc``.
    """
    if path.stem not in GENERIC_STEMS:
        return path.with_suffix("").as_posix()
    folders = [part for part in path.parent.parts if part not in GENERIC_FOLDERS]
    if path.parent.name in GENERIC_FOLDERS:
        folders = folders[-1:]
    return "/".join(folders) or path.stem
