from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.config import Config
from stepwatch.deploy.native.installed import node_exporter, serves_already
from stepwatch.deploy.native.state import State
from tests.real import Server, free_port

PAGES = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[3]) if self.path == "/metrics" else 200)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())
HTTPServer(("127.0.0.1", int(sys.argv[1])), Pages).serve_forever()
"""
OF_NODE_EXPORTER = '# TYPE node_exporter_build_info gauge\nnode_exporter_build_info{version="1.5.0"} 1\n'


@pytest.fixture(name="config")
def _config() -> Config:
    return Config.model_validate({"ports": {"node": free_port()}})


def serving(
    config: Config, page: str, *, program: str = sys.executable, status: int = 200
) -> Iterator[Server]:
    port = config.ports.node
    command = [program, "-c", PAGES, str(port), page, str(status)]
    with Server(command, f"http://127.0.0.1:{port}") as server:
        yield server


@pytest.mark.parametrize("name", ["node_exporter", "prometheus-node-exporter"])
def test_it_is_found_on_path_under_both_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node_exporter() is None

    (tmp_path / name).touch(mode=0o755)
    assert node_exporter() == tmp_path / name


def test_one_that_runs_as_a_service_is_used(config: Config, tmp_path: Path) -> None:
    assert not serves_already(config, State(tmp_path))
    for _ in serving(config, OF_NODE_EXPORTER):
        assert serves_already(config, State(tmp_path))


def test_another_program_on_its_port_is_not_taken_for_it(config: Config, tmp_path: Path) -> None:
    for _ in serving(config, "# about node_exporter_build_info{}\n"):
        assert not serves_already(config, State(tmp_path))


@pytest.mark.parametrize("name", ["node_exporter", "other"])
def test_one_that_is_too_busy_to_answer_is_recognised_by_its_name(
    config: Config, tmp_path: Path, name: str
) -> None:
    """It refuses more than 40 requests at a time."""
    (tmp_path / name).symlink_to(sys.executable)
    for _ in serving(config, "Limit of requests reached", program=str(tmp_path / name), status=503):
        assert serves_already(config, State(tmp_path)) == (name == "node_exporter")


def test_our_own_is_not_taken_for_someone_else_s(config: Config, tmp_path: Path) -> None:
    (tmp_path / "supervisord.pid").write_text(str(os.getsid(0)))  # it leads the parts' session
    for _ in serving(config, OF_NODE_EXPORTER):
        assert not serves_already(config, State(tmp_path))
