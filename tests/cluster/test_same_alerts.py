"""Runs and GPUs raise the same alerts on one machine and on a hub with an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.twice import ALONE, HUB, Alert, Twice
from tests.real.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.world]


def test_what_runs_and_gpus_of_an_agent_raise_on_a_hub_is_what_they_raise_on_one_machine(
    tmp_path: Path,
) -> None:
    with Twice(tmp_path) as twice:
        twice.go_wrong()

        def only_at() -> dict[str, set[Alert]]:
            fired = twice.fired()
            return {ALONE: fired[ALONE] - fired[HUB], HUB: fired[HUB] - fired[ALONE]}

        # One may be an evaluation ahead.
        eventually(lambda: not any(only_at().values()), pause=1, seen=only_at)
        assert not {name for name, run, *_ in twice.fired()[HUB] if run == "healthy"}
