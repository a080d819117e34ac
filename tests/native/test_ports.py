"""Who holds a port, also while a part that starts itself again releases it for a moment."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from stepwatch.system import processes
from tests.real import free_port
from tests.real.waiting import eventually, in_time

# Opens and closes its socket by turns, as the exporter does when it starts itself again.
RESTLESS = """
import socket, sys, time
while True:
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
        time.sleep(0.02)
    time.sleep(0.02)
"""


@pytest.fixture(name="restless")
def _restless() -> Iterator[tuple[int, int]]:
    """Port and process id of a server that opens and closes its socket by turns."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", RESTLESS, str(port)]) as process:
        eventually(lambda: processes.port_taken("127.0.0.1", port))
        yield port, process.pid
        process.kill()


@pytest.fixture(name="unseen")
def _unseen() -> Iterator[int]:
    """The port of a socket that is on its way to a process, so that none has it open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        sender, receiver = socket.socketpair()
        handle = array.array("i", [server.fileno()])
        sender.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle)])
    with sender, receiver:
        yield port


def test_a_part_of_ours_that_opens_its_socket_again_is_not_a_stranger(restless: tuple[int, int]) -> None:
    port, pid = restless

    def ours(owner: processes.Owner | None) -> bool:
        return owner is not None and owner.pid == pid

    assert {processes.port_conflict("exporter", "127.0.0.1", port, ours) for _ in range(30)} == {None}


def test_a_port_whose_owner_stays_hidden_is_another_users(
    unseen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_SETTLE_SECONDS", 0.3)
    begun = time.monotonic()

    said = processes.port_conflict("gpu", "127.0.0.1", unseen, lambda owner: owner is not None)

    assert said
    assert said.startswith(f"ports.gpu: {unseen} is in use by a process of another user. Fix: ")
    assert time.monotonic() - begun >= 0.3


def test_an_owner_that_is_shown_is_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        begun = time.monotonic()
        port = server.getsockname()[1]
        said = processes.port_conflict("gpu", "127.0.0.1", port, lambda _: False)

    assert said
    assert f"{port} is in use by pid {os.getpid()} (" in said
    assert in_time(time.monotonic() - begun, 1)


def test_anyone_who_takes_a_hidden_owner_for_his_own_does_not_wait(unseen: int) -> None:
    begun = time.monotonic()

    assert processes.port_conflict("gpu", "127.0.0.1", unseen, lambda owner: owner is None) is None
    assert in_time(time.monotonic() - begun, 1)
