"""Who holds a port."""

from __future__ import annotations

import array
import socket
import time
from collections.abc import Iterator

import pytest

from stepwatch.system import processes


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


def test_a_port_whose_owner_stays_hidden_is_another_users(
    unseen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_SETTLE_SECONDS", 0.3)
    begun = time.monotonic()

    said = processes.port_conflict("gpu", "127.0.0.1", unseen, lambda owner: owner is not None)

    assert said
    assert said.startswith(f"ports.gpu: {unseen} is in use by a process of another user. Fix: ")
    assert time.monotonic() - begun >= 0.3
