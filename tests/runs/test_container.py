"""What the containers of the exporters need besides: a health check, and Grafana's password."""

from __future__ import annotations

import socket
import stat
import threading

import pytest

from exporter import healthcheck
from exporter.door import backend_access
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


def test_the_password_is_made_once_and_never_said(tmp_path, capsys):
    file, backend = tmp_path / "grafana-password", tmp_path / "backend"
    assert backend_access.main([str(file), str(backend)]) == 0
    made = file.read_text()
    assert len(made) == 24
    assert made not in capsys.readouterr().out
    assert backend_access.main([str(file), str(backend)]) == 0
    assert file.read_text() == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert {path.name for path in tmp_path.iterdir()} == {"grafana-password", "backend"}


@pytest.mark.parametrize("left", ["", "half"])
def test_what_a_killed_one_left_does_not_matter(tmp_path, left):
    (tmp_path / ".grafana-password.new").write_text(left)
    backend_access.main([str(tmp_path / "grafana-password"), str(tmp_path / "backend")])
    assert len((tmp_path / "grafana-password").read_text()) == 24
