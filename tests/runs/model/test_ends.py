"""Whether a run goes on or has ended, judged from what is known about it."""

from __future__ import annotations

from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.model.ends import Signs, Silence, state
from exporter.runs.model.run import Pace, Run
from exporter.runs.signals.record import Ended
from exporter.runs.stats.catalogue import STATES

FAILED, DOUBTFUL, FINISHED = Ended("failed"), Ended("failed", certain=False), Ended("finished")


def judged(**known: Any) -> str:
    """The state of a run that goes on at step 10 of 100, but for what is ``known``."""
    known = {"ended": None, "step": 10, "total": 100, "typical": 30.0, "gone": None, "held": False} | known
    run = SimpleNamespace(
        ended=known["ended"],
        total=known["total"],
        progress=SimpleNamespace(step=known["step"]),
        times=SimpleNamespace(pace=SimpleNamespace(typical=lambda: known["typical"])),
    )
    signs = Signs(known.get("quiet", 5.0), known["gone"], known["held"], known.get("launched"))
    return state(cast("Run", run), signs, Silence())


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, "running"),
        ({"total": None}, "running"),
        # finished: the log says so, or the total is reached and the writer has ended or is silent
        ({"ended": FINISHED}, "finished"),
        ({"step": 100}, "running"),
        ({"step": 100, "held": True}, "running"),
        ({"step": 100, "gone": 9.9}, "running"),
        ({"step": 100, "gone": 10.0}, "finished"),
        ({"step": 100, "quiet": 60.0}, "running"),
        ({"step": 100, "quiet": 61.0}, "finished"),
        ({"step": 100, "quiet": 100.0, "typical": 60.0}, "running"),
        ({"step": 100, "quiet": 121.0, "typical": 60.0}, "finished"),
        # ... a writer that is there may save what it learnt, until Stalled would report it
        ({"step": 100, "quiet": 600.0, "held": True}, "running"),
        ({"step": 100, "quiet": 601.0, "held": True}, "finished"),
        ({"step": 100, "quiet": 601.0, "held": True, "typical": 130.0}, "running"),
        ({"step": 100, "launched": "running", "quiet": 600.0}, "running"),
        ({"step": 100, "launched": "running", "quiet": 601.0}, "finished"),
        ({"step": 100, "launched": "running", "ended": FINISHED}, "finished"),
        ({"step": 100, "launched": "stopped"}, "finished"),
        ({"step": 100, "launched": "failed", "gone": 60.0}, "failed"),
        ({"step": 99, "launched": "stopped"}, "stopped"),
        ({"step": 99}, "running"),
        ({"step": None}, "running"),
        ({"ended": FINISHED, "gone": 60.0}, "finished"),
        ({"step": 100, "ended": FAILED}, "finished"),
        ({"step": 100, "ended": DOUBTFUL}, "running"),
        ({"step": 100, "ended": DOUBTFUL, "gone": 10.0}, "finished"),
        ({"step": 100, "ended": DOUBTFUL, "quiet": 61.0}, "finished"),
        ({"ended": FINISHED, "quiet": 1e6}, "finished"),
        # failed: the log says so
        ({"ended": FAILED}, "failed"),
        ({"ended": FAILED, "held": True}, "failed"),
        ({"ended": FAILED, "gone": 60.0}, "failed"),
        # a traceback alone: only with the writer gone, or with silence where it cannot be seen
        ({"ended": DOUBTFUL}, "running"),
        ({"ended": DOUBTFUL, "gone": 9.9}, "running"),
        ({"ended": DOUBTFUL, "gone": 10.0}, "failed"),
        ({"ended": DOUBTFUL, "quiet": 60.0}, "running"),
        ({"ended": DOUBTFUL, "quiet": 61.0}, "failed"),
        ({"ended": DOUBTFUL, "quiet": 100.0, "typical": 60.0}, "running"),
        ({"ended": DOUBTFUL, "quiet": 121.0, "typical": 60.0}, "failed"),
        ({"ended": DOUBTFUL, "quiet": 61.0, "typical": None}, "failed"),
        ({"ended": DOUBTFUL, "quiet": 500.0, "held": True}, "running"),
        # the writer is gone
        ({"gone": 9.9}, "running"),
        ({"gone": 10.0}, "vanished"),
        ({"gone": 10.0, "total": None}, "stopped"),
        # silence
        ({"quiet": 600.0}, "running"),
        ({"quiet": 601.0}, "stopped"),
        ({"quiet": 601.0, "total": None}, "stopped"),
        ({"quiet": 601.0, "typical": 130.0}, "running"),
        ({"quiet": 651.0, "typical": 130.0}, "stopped"),
        ({"quiet": 601.0, "typical": None}, "stopped"),
        ({"quiet": 1e6, "held": True}, "running"),
    ],
)
def test_states_are_those_of_the_contract(known: dict[str, Any], expected: str) -> None:
    assert judged(**known) == expected


@given(
    ended=st.sampled_from([None, FAILED, DOUBTFUL, FINISHED]),
    step=st.one_of(st.none(), st.integers(-1, 200)),
    total=st.one_of(st.none(), st.integers(0, 200)),
    quiet=st.floats(0, 1e6),
    gone=st.one_of(st.none(), st.floats(0, 1e6)),
    held=st.booleans(),
    typical=st.one_of(st.none(), st.floats(0.1, 4000)),
)
def test_every_run_is_in_one_known_state(**known: Any) -> None:
    assert judged(**known) in STATES


def test_one_night_without_steps_does_not_make_steps_slow() -> None:
    pace = Pace()
    for step in range(50):
        pace.add(30_000.0 if step == 25 else 60.0)

    assert pace.typical() == 240.0


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=200))
def test_the_typical_interval_is_between_one_and_four_medians_of_the_last_64(seconds: list[float]) -> None:
    pace = Pace()
    for interval in seconds:
        pace.add(interval)
    usual = median(seconds[-64:])

    assert usual <= (pace.typical() or 0.0) <= 4 * usual
