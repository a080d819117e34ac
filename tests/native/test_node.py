from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepwatch.config import Config
from stepwatch.deploy.native.installed import node_exporter, serves_already
from stepwatch.deploy.native.state import State
from tests.real import free_port
from tests.real.answering import Answering

OF_NODE_EXPORTER = '# TYPE node_exporter_build_info gauge\nnode_exporter_build_info{version="1.5.0"} 1\n'


@pytest.mark.parametrize("name", ["node_exporter", "prometheus-node-exporter"])
def test_it_is_found_on_path_under_both_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node_exporter() is None

    (tmp_path / name).touch(mode=0o755)
    assert node_exporter() == tmp_path / name


@pytest.mark.parametrize(
    ("page", "ours", "used"),
    [
        (OF_NODE_EXPORTER, False, True),
        ("# about node_exporter_build_info{}\n", False, False),  # another program
        (OF_NODE_EXPORTER, True, False),
    ],
)
def test_one_that_runs_as_a_service_is_used_and_nothing_else(
    tmp_path: Path, page: str, ours: bool, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisord = os.getpid()
    # 0: in a container the leader of a session may be outside
    monkeypatch.setattr(os, "getsid", lambda _: supervisord if ours else 0)
    config = Config.model_validate({"ports": {"node": free_port()}})
    assert not serves_already(config, State(tmp_path))
    if ours:
        (tmp_path / "supervisord.pid").write_text(str(supervisord))
    with Answering(body=page) as server:
        config = Config.model_validate({"ports": {"node": server.port}})
        assert serves_already(config, State(tmp_path)) is used
