"""Who is registered: bounded, and no living server gives way to a new one."""

from __future__ import annotations

import pytest

from exporter.runs.discovery.registrations import (
    FORGOTTEN_SECONDS,
    GONE_SECONDS,
    MOST,
    MOST_OF_JOB,
    RefusedError,
    RegistrationRequest,
    Server,
    Table,
)


def request(*ports: int, job: str = "vllm", node: str = "10.0.0.7") -> RegistrationRequest:
    return RegistrationRequest(job, tuple(Server(f"{node}:{port}", {}) for port in ports))


def alive(_: str) -> float:
    return 0.0


def ports(table: Table) -> set[int]:
    return {int(one.address.rpartition(":")[2]) for one in table}


def full_table() -> Table:
    table = Table()
    for job in range(MOST // MOST_OF_JOB):
        table.add(request(*range(1, MOST_OF_JOB + 1), job=f"job{job}", node=f"10.0.0.{job}"), 1.0, alive)
    assert len(table) == MOST
    return table


def test_who_registers_again_is_renewed_and_may_be_of_another_job() -> None:
    table = Table()
    table.add(request(1, 2), 1.0, alive)
    table.add(request(2, job="sglang"), 5.0, alive)

    assert {(one.address, one.job, one.at) for one in table} == {
        ("10.0.0.7:1", "vllm", 1.0),
        ("10.0.0.7:2", "sglang", 5.0),
    }
    assert table.of_job("vllm") == 1


def test_one_job_has_so_many_servers_and_no_more() -> None:
    table = Table()
    table.add(request(*range(1, MOST_OF_JOB + 1)), 1.0, alive)
    with pytest.raises(RefusedError, match=f"at most {MOST_OF_JOB} of one job") as refused:
        table.add(request(1, MOST_OF_JOB + 1), 1.0, alive)
    table.add(request(1, job="sglang", node="10.0.0.8"), 1.0, alive)

    assert refused.value.result == "full"
    assert table.of_job("vllm") == MOST_OF_JOB


def test_a_full_table_takes_no_one_in_while_all_live() -> None:
    table = full_table()
    version = table.version
    with pytest.raises(RefusedError, match=f"at most {MOST} in all"):
        table.add(request(1, job="new"), 2.0, alive)
    table.add(request(7, job="job0", node="10.0.0.0"), 3.0, alive)  # one that is there already

    assert len(table) == MOST
    assert table.version == version + 1


def test_in_a_full_table_the_longest_silent_make_room_and_no_other() -> None:
    table = full_table()
    silent = {"10.0.0.0:1": GONE_SECONDS, "10.0.0.0:2": 2 * GONE_SECONDS, "10.0.0.0:3": GONE_SECONDS - 1}
    table.add(request(9999, job="new", node="10.0.0.9"), 2.0, lambda address: silent.get(address, 0.0))

    known = {one.address for one in table}
    assert len(known) == MOST
    assert "10.0.0.0:2" not in known
    assert {"10.0.0.0:1", "10.0.0.0:3", "10.0.0.9:9999"} <= known
    with pytest.raises(RefusedError):
        table.add(request(1, 2, job="new", node="10.0.0.8"), 2.0, lambda address: silent.get(address, 0.0))


def test_who_does_not_come_back_is_forgotten() -> None:
    table = Table()
    table.add(request(1, 2, 3), 1.0, alive)
    version = table.version
    table.forget(lambda address: FORGOTTEN_SECONDS if address.endswith(":2") else FORGOTTEN_SECONDS - 1)

    assert ports(table) == {1, 3}
    assert table.version > version
