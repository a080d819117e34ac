from __future__ import annotations

import pytest

from tests.chaos.schedule import KINDS, draw

PROCESSES = ("exporter", "prometheus", "supervisord")
SERVERS = ("exporter", "webhook")


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_gives_the_same_faults_in_whatever_order_processes_are_found(seed: int) -> None:
    assert draw(seed, PROCESSES, SERVERS) == draw(seed, PROCESSES[::-1], SERVERS[::-1])


@pytest.mark.parametrize("first", range(20))
def test_three_seeds_in_a_row_have_every_kind_of_fault_and_kill_every_process(first: int) -> None:
    faults = [fault for seed in range(first, first + 3) for fault in draw(seed, PROCESSES, SERVERS).faults]

    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.target for fault in faults if fault.kind == "kill"} == set(PROCESSES)
