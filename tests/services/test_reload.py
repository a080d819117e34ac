"""Having the real Alertmanager read what was rendered."""

from __future__ import annotations

import shutil

import pytest

from stepwatch.services.settings import ReloadError, alertmanager_runs, reload
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.real import AlertmanagerServer, free_port

GENERATED = CHECKOUT / "alertmanager/generated"


@pytest.fixture(name="server", params=["0.25", "0.31"])
def _server(request, tmp_path):
    shutil.copytree(GENERATED, tmp_path / "generated")
    with AlertmanagerServer(request.param, tmp_path / "generated") as server:
        server.settings = tmp_path / "generated/alertmanager.yml"
        yield server


def metrics(server):
    return http_client.read(f"{server.url}/metrics")


def test_it_reports_by_the_file_itself_whether_it_runs_it(server):
    assert alertmanager_runs(metrics(server), server.settings.read_bytes())
    server.settings.write_text(server.settings.read_text() + "# changed\n")
    assert not alertmanager_runs(metrics(server), server.settings.read_bytes())
    assert "loaded the new settings" in reload(server.url, server.settings)
    assert alertmanager_runs(metrics(server), server.settings.read_bytes())


def test_one_that_reads_other_files_is_not_taken_for_ours(server):
    server.settings.write_text(server.settings.read_text() + "# another stack's\n")
    assert "reads other files" in reload(server.url, GENERATED / "alertmanager.yml")


def test_refused_settings_leave_the_old_ones_in_force(server):
    good = server.settings.read_bytes()
    server.settings.write_text("route: [")
    with pytest.raises(ReloadError, match=r"keeps the old ones\. It says: .*yaml"):
        reload(server.url, server.settings)
    server.settings.write_bytes(good)
    assert alertmanager_runs(metrics(server), server.settings.read_bytes())


def test_one_that_does_not_answer_reads_them_at_its_start():
    assert "No Alertmanager answers" in reload(
        f"http://127.0.0.1:{free_port()}", GENERATED / "alertmanager.yml"
    )
