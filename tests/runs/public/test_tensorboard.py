"""Public event files."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from exporter.runs.readers import frames
from tests.runs import events
from tests.runs.sources.test_tensorboard import same

REAL = {"grpo_vl_improving": 240, "grpo_vl_entropy_collapse": 490}
"""Real files by the end of their names, with their last step."""


@pytest.mark.parametrize("name", ["grpo_vl_improving", "grpo_vl_entropy_collapse"])
def test_real_files_are_read_as_tensorboard_reads_them(real_logs: Path, name: str) -> None:
    (path,) = (real_logs / "tfevents").glob(f"*.{name}")

    found = frames.split(path.read_bytes())

    assert found.lines == events.raw(path)
    assert (found.used, found.broken, found.too_long, found.skip) == (path.stat().st_size, 0, 0, 0)


@pytest.mark.parametrize("name", REAL)
def test_real_files_hold_what_tensorboard_shows(real_logs: Path, name: str) -> None:
    (path,) = (real_logs / "tfevents").glob(f"*.{name}")
    shown = EventAccumulator(str(path), {"scalars": 0}).Reload()

    found = events.read(path)

    same(found, path)
    assert {tag for record in found for tag in record.values} == set(shown.Tags()["scalars"])
    for tag in shown.Tags()["scalars"]:
        ours = [(record.step, record.values[tag]) for record in found if tag in record.values]
        assert repr(ours) == repr([(point.step, point.value) for point in shown.Scalars(tag)])


@pytest.mark.parametrize(("name", "last"), list(REAL.items()))
def test_the_scalars_of_a_step_are_one_record(real_logs: Path, name: str, last: int) -> None:
    (path,) = (real_logs / "tfevents").glob(f"*.{name}")

    found = events.read(path)

    assert [record.step for record in found] == list(range(10, last + 1, 10))
    assert {record.stream for record in found} == {""}
    assert all("train/reward" in record.values for record in found)
    began = {
        step: [time for time, *_ in same]
        for step, same in groupby(events.reported(path), lambda each: each[1])
    }
    assert [record.time for record in found] == [times[0] for times in began.values()]
