"""Public samples of formats of which there is no whole log."""

from __future__ import annotations

from pathlib import Path

from exporter.runs.signals.record import Record, number
from tests.runs.sources import test_nemo_rl, test_slime


def test_the_sample_without_a_header_is_the_first_step(real_logs: Path) -> None:
    text = (real_logs / "format_samples.md").read_text()
    block = text.partition("## NeMo-RL")[2].partition("```\n")[2].partition("```")[0]
    ((step, values),) = test_nemo_rl.records(*block.splitlines())

    assert step == 1
    assert len(values) == block.count("•") == 12
    assert values["timing/train/total_step_time"] == 35.7


def test_the_real_record_of_the_samples_is_read(real_logs: Path) -> None:
    text = (real_logs / "format_samples.md").read_text()
    (line,) = [line for line in text.splitlines() if "- rollout 0: {" in line]
    (found,) = test_slime.read(line)

    assert isinstance(found, Record)
    assert number(found.values["rollout/raw_reward"]) == 0.20833333333333334
    assert len(found.values) == line.count("'rollout/") == 10
