"""Limits of overrides as the exporter serves them: the first that fits a run and names a block counts."""

from __future__ import annotations

import pickle
from math import isnan

import pytest

from exporter.runs.serve.metrics import MOST_KNOWN, Override, Overrides

OVERRIDES = Overrides(
    [
        Override.read({"runs": "sft-.*", "limits": {"KL": {"enabled": 0}}}),
        Override.read({"runs": ".*-long", "limits": {"KL": {"warning.above": None}, "Stalled": {}}}),
        Override.read({"runs": ".*", "limits": {"Stalled": {"silence": 60}}}),
    ]
)


def _served(run: str, overrides: Overrides = OVERRIDES) -> dict[str, float]:
    return {labels["limit"]: value for labels, value in overrides.samples(run)}


def test_of_the_overrides_that_fit_a_run_the_first_that_names_a_block_counts() -> None:
    assert _served("sft-a") == {"KL.enabled": 0, "Stalled.silence": 60}
    assert _served("sft-long") == {"KL.enabled": 0}
    assert _served("ppo") == {"Stalled.silence": 60}


def test_a_limit_that_is_taken_away_is_nan() -> None:
    (value,) = _served("ppo-long").values()
    assert isnan(value)


def test_a_run_is_served_the_same_however_many_came_before() -> None:
    for number in range(2 * MOST_KNOWN):
        assert _served(f"sft-{number}") == _served("sft-a")


def test_overrides_reach_the_processes_that_read_old_logs() -> None:
    assert _served("sft-a", pickle.loads(pickle.dumps(OVERRIDES))) == _served("sft-a")


@pytest.mark.parametrize(
    "found",
    [{}, {"runs": "("}, {"runs": "a", "limits": {"KL": 1}}, 5, {"runs": "a", "limits": {"KL": {"a": "b"}}}],
)
def test_what_is_not_an_override_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"is not an override[.] Expected one such as"):
        Override.read(found)
