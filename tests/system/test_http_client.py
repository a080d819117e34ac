"""Pages of the stack's own parts, which may stop at any moment."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


def test_pages_are_read_at_the_same_time() -> None:
    together = threading.Barrier(3)  # each answer waits until all three are asked for

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            together.wait(30)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.path.encode())

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        urls = {path: f"http://127.0.0.1:{server.server_address[1]}{path}" for path in ("/a", "/b", "/c")}

        assert http_client.read_all(urls.values()) == {url: path for path, url in urls.items()}
        server.shutdown()
    assert http_client.read_all([]) == {}
