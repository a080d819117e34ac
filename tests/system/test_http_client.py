"""Pages of the stack's own parts, which may stop at any moment."""

from __future__ import annotations

import socket
import threading

import pytest

from stepwatch.system import http_client


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        b"nonsense\r\n\r\n",
    ],
    ids=["nothing", "head", "half a body", "no HTTP"],
)
def test_a_part_that_stops_in_the_middle_of_an_answer_gives_none(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                client, _ = server.accept()
                client.recv(1000)
                client.sendall(said)
                client.close()

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"

        assert http_client.read(url) is None
        assert http_client.order(url) is None or said.startswith(b"HTTP/1.1 200 OK")
