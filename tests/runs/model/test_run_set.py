"""One log may tell of several runs, but not of any number."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.runs.model.run_set import MOST_OF_LOG
from tests.runs.conftest import Watching


@pytest.mark.slow
def test_a_table_of_too_many_runs_shows_the_first_and_counts_what_is_left_out(
    folder: Path, watched: Watching
) -> None:
    names = [f"Name: run {number} - critic/rewards/mean" for number in range(MOST_OF_LOG + 3)]
    rewards = [[number / 7 + step for number in range(len(names))] for step in (1, 2)]
    rows = [",".join(map(str, (step, *values))) for step, values in enumerate(rewards, 1)]
    (folder / "a.csv").write_text("\n".join([",".join(["Step", *names]), *rows, ""]))
    found = watched().look()

    assert found.value("stepwatch_events_refused_total") == 3 * 2
    assert len(found.runs()) + (found.value("stepwatch_dormant_runs") or 0) == MOST_OF_LOG
