"""Runs and GPUs raise the same alerts on one machine and on a hub with an agent, at nearly the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.twice import ALONE, HUB, HUNG, Alert, Twice
from tests.real.waiting import eventually, in_time

pytestmark = [pytest.mark.e2e, pytest.mark.world]

OF_RUNS, OF_OTHERS = 5 + 5 + 1, 15 + 15 + 1
"""Seconds by which an alert of the hub may be later: a scrape and, since both evaluate at moments of their
own, an evaluation; an agent sends within a second."""
OF_MISSING_DATA = 300
"""Seconds by which the hub may be later to say that an agent's exporter hangs: as NodeLost."""


def test_what_runs_and_gpus_of_an_agent_raise_on_a_hub_is_what_they_raise_on_one_machine(
    tmp_path: Path,
) -> None:
    with Twice(tmp_path) as twice:
        twice.go_wrong()

        def only_at() -> dict[str, set[Alert]]:
            every = twice.fired()
            fired = {place: {each for each in every[place] if each[0] != HUNG[place]} for place in HUNG}
            return {ALONE: fired[ALONE] - fired[HUB], HUB: fired[HUB] - fired[ALONE]}

        # One may be an evaluation ahead.
        eventually(lambda: not any(only_at().values()), pause=1, seen=only_at)
        assert not {name for name, run, *_ in twice.fired()[HUB] if run == "healthy"}

        alone, hub = (twice.came()[place] for place in (ALONE, HUB))
        later = {each: hub[each] - alone[each] for each in alone.keys() & hub.keys()}
        assert {"KLExplosion", "GPUXid"} <= {name for name, *_ in later}
        assert max(hub.values()) - max(alone.values()) < OF_MISSING_DATA
        assert not {each: took for each, took in later.items() if not in_time(took, allowed(each))}


def allowed(alert: Alert) -> float:
    """Seconds by which it may come later from the hub."""
    _, run, *_ = alert
    return OF_RUNS if run else OF_OTHERS
