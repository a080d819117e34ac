"""Public samples of formats of which there is no whole log."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.runs.signals.record import Record, number
from tests.runs.formats.__main__ import FORMATS, parse
from tests.runs.lines import bare


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("nemo_rl_console", "timing/train/total_step_time", (1, 12, 35.7)),
        ("slime_console", "rollout/raw_reward", (0, 10, 0.20833333333333334)),
    ],
)
def test_the_real_record_of_the_samples_is_read(
    real_logs: Path, name: str, key: str, expected: tuple[int, int, float]
) -> None:
    text = (real_logs / "format_samples.md").read_text()
    if name == "nemo_rl_console":
        text = text.partition("## NeMo-RL")[2].partition("```\n")[2].partition("```")[0]
    else:
        (text,) = [line for line in text.splitlines() if "- rollout 0: {" in line]
    source = FORMATS[name][1]()
    (found,) = [*parse(source, bare(*text.splitlines())), *source.flush()]

    assert isinstance(found, Record)
    assert (found.step, len(found.values), number(found.values[key])) == expected
