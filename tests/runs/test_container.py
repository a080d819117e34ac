"""The health check of the exporters' containers."""

from __future__ import annotations

import socket
import threading

from exporter import healthcheck
from tests.real import free_port
from tests.runs.test_main import Exporter


def test_the_health_check_reports_whether_an_exporter_answers(tmp_path):
    exporter = Exporter("--path", tmp_path)
    exporter.until(lambda scrape: bool(scrape.samples))
    assert healthcheck.main([str(exporter.port)]) == 0
    exporter.end()
    assert healthcheck.main([str(exporter.port)]) == 1


def test_a_port_that_answers_something_else_is_not_healthy():
    with socket.create_server(("127.0.0.1", free_port())) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(1024)
            connection.sendall(b"HTTP/1.0 503 Service Unavailable\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert not healthcheck.healthy(server.getsockname()[1])
