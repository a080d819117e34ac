"""Prometheus and Alertmanager as Stepwatch starts them: with their two users, the oldest and the newest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.stack import PAIRS
from tests.real import AlertmanagerServer, PrometheusServer
from tests.real.credentials import protected, sign_in


@dataclass
class Site:
    """Both programs, and the folder of their credentials."""

    prometheus: PrometheusServer
    alertmanager: AlertmanagerServer
    access: Path


@pytest.fixture(name="site", params=PAIRS, ids=["oldest", "newest"], scope="module")
def _site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    access = folder / "credentials"
    option = protected(access)
    (folder / "prometheus.yml").write_text("global: {}\n")
    (folder / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    # A hub's, which accepts samples besides.
    taking = (option, "--web.enable-remote-write-receiver")
    prometheus = PrometheusServer(request.param[0], folder, options=taking)
    alertmanager = AlertmanagerServer(request.param[1], folder, options=(option,))
    sign_in(access, prometheus.port, alertmanager.port)
    with prometheus, alertmanager:
        yield Site(prometheus, alertmanager, access)
