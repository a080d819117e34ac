"""Where the labelled public training logs are: only their judgement, and the pages made of it, read them.

They lie beside a checkout and are no part of the project. Where there are none, tests that judge them
are skipped with a reason, in CI too.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "shared"
USUAL = (BESIDE / "runs", BESIDE / "runs-part2", BESIDE / "runs-part3")
LABELS = "labels.yaml"
NAMED_BY = "STEPWATCH_TEST_RUNS"
"""The environment variable that names other folders, with a colon between them."""


def folders() -> list[Path]:
    """The folders with labelled logs, in order; empty where there are none."""
    named = os.environ.get(NAMED_BY)
    searched = USUAL if named is None else tuple(map(Path, filter(None, named.split(os.pathsep))))
    return [folder for folder in searched if (folder / LABELS).is_file()]


needed = pytest.mark.skipif(
    not folders(), reason=f"no labelled public logs: {NAMED_BY} names no folder with a {LABELS}"
)
"""Marks a test that judges these logs."""
