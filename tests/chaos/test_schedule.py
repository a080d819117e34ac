from __future__ import annotations

import pytest

from tests.chaos.schedule import KINDS, WINDOW, draw

PROCESSES = ("exporter", "prometheus", "supervisord")
SERVERS = ("exporter", "webhook")


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_gives_the_same_faults_in_whatever_order_processes_are_found(seed: int) -> None:
    assert draw(seed, PROCESSES, SERVERS) == draw(seed, PROCESSES[::-1], SERVERS[::-1])


def test_other_seeds_give_other_faults() -> None:
    assert len({str(draw(seed, PROCESSES, SERVERS).faults) for seed in range(100)}) == 100


@pytest.mark.parametrize("first", range(20))
def test_three_seeds_in_a_row_have_every_kind_of_fault_and_kill_every_process(first: int) -> None:
    faults = [fault for seed in range(first, first + 3) for fault in draw(seed, PROCESSES, SERVERS).faults]

    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.target for fault in faults if fault.kind == "kill"} == set(PROCESSES)


def test_every_process_is_stopped_and_every_server_cut_off_by_some_seed() -> None:
    faults = [fault for seed in range(100) for fault in draw(seed, PROCESSES, SERVERS).faults]

    for kind, targets in {"freeze": PROCESSES, "cut": SERVERS}.items():
        assert {fault.target for fault in faults if fault.kind == kind} == set(targets)


def test_faults_begin_in_the_window_and_end() -> None:
    for seed in range(100):
        schedule = draw(seed, PROCESSES, SERVERS)
        assert all(0 <= fault.at <= WINDOW for fault in schedule.faults)
        assert all(fault.lasts <= 15 for fault in schedule.faults)
        assert 0 <= schedule.sick_at <= WINDOW
