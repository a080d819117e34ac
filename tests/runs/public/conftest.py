"""Reading the labelled public logs right: what their judgement begins with. Skipped where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import public_logs

SAMPLES = "format_samples.md"


@pytest.fixture(name="real_logs", scope="session")
def _real_logs() -> Path:
    """The folder of the public logs that these tests know, which has samples of formats as well."""
    for folder in public_logs.folders():
        if (folder / SAMPLES).is_file():
            return folder
    pytest.skip(f"no public logs: {public_logs.NAMED_BY} names no folder with labels and a {SAMPLES}")
