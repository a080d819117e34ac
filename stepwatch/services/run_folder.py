"""The folder that runs are read from."""

from __future__ import annotations

from pathlib import Path

from stepwatch.schema.errors import Refused


def make(runs: Path) -> bool:
    """Make the folder if it is missing and no glob; returns whether it was.

    Raises:
        Refused: it cannot be made.
    """
    if any(sign in str(runs) for sign in "*?[") or runs.is_dir():
        return False
    try:
        runs.mkdir(parents=True)
    except OSError as problem:
        raise Refused(
            f"runs.path: {runs}: {problem.strerror}. Expected: a folder. "
            "Fix: name the folder that your runs write to, `make up RUNS=folder`."
        ) from None
    return True


def remark(*, made: bool, remembered: bool) -> str:
    """What is worth knowing about it, as the rest of a sentence that ends with its path."""
    if made:
        return (
            ", which did not exist, so it was made; it is empty. "
            "If that is a slip, `make up RUNS=folder` names another"
        )
    if remembered:
        return ", which `make up RUNS=folder` named last (the same, or runs.path in config.yaml, changes it)"
    return ""
