"""A central system gets a copy of all samples under the labels that tell machines apart; its loss is told."""

from __future__ import annotations

import json
import urllib.parse

import pytest

from exporter import credentials
from stepwatch.system import http_client
from tests.e2e.stack import PAIRS, Stack
from tests.e2e.writer import writing
from tests.own_logs import HEALTHY
from tests.real import PrometheusServer, free_port
from tests.real.credentials import protected, sign_in

pytestmark = pytest.mark.e2e

SENT = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds"


class Central(PrometheusServer):
    """A Prometheus that takes remote write, and asks for a login."""

    def __init__(self, version, folder):
        folder.mkdir()
        (folder / "prometheus.yml").write_text("{}")
        options = ("--web.enable-remote-write-receiver", protected(folder))
        super().__init__(version, folder, port=free_port(), options=options)
        self.password = folder / credentials.PASSWORD
        sign_in(folder, self.port)

    def query(self, promql):
        words = urllib.parse.urlencode({"query": promql})
        page = http_client.read(f"{self.url}/api/v1/query?{words}")
        return json.loads(page)["data"]["result"] if page else []


@pytest.fixture(name="central", params=[pytest.param("2.42", marks=pytest.mark.world), "3.13"])
def _central(request, tmp_path):
    """Of the version with which the stack's own Prometheus comes too."""
    with Central(request.param, tmp_path / "central") as central:
        yield central


def test_a_central_system_gets_every_sample_with_the_label_of_the_cluster(central, tmp_path):
    versions = next(pair for pair in PAIRS if pair[0] == central.tool.version[:4])
    login = {"username": credentials.INTERNAL, "password_file": str(central.password)}
    system = {"url": f"{central.url}/api/v1/write", **login}
    settings = {"external_labels": {"cluster": "night"}, "remote_write": [system]}
    with Stack(tmp_path / "stack", versions, **settings) as stack:
        with writing(HEALTHY, stack.runs / "ppo.log", "--rate", "10", "--steps", "20", "--stay"):
            stack.wait_step("ppo", 19)
            stack.wait_until(lambda: central.query('rl_step{cluster="night",run="ppo"} == 19'))
        # What rules record goes along; the stack's own data stay as they were.
        stack.wait_until(lambda: central.query('ALERTS{alertname="Watchdog",cluster="night"}'))
        assert stack.query('rl_step{cluster="night"}') == []
        # Prometheus' own alerts and the run exporter's are of one cluster, and so inhibit each other.
        stack.wait_until(lambda: _clusters(stack) == {"night"})

        central.kill()
        stack.wait_until(lambda: stack.query(f"timestamp({SENT}) - {SENT} > 20"))
        central.start()
        stack.wait_until(lambda: stack.query(f"timestamp({SENT}) - {SENT} < 15"))
        # What was missed meanwhile came, too: no hole is longer than between two scrapes and a lost one.
        missed = central.query('min_over_time(count_over_time(up{job="runs"}[15s])[45s:5s])')
        assert [float(each["value"][1]) >= 1 for each in missed] == [True]


def _clusters(stack):
    alerts = http_client.read(f"http://{stack.config.address('alertmanager')}/api/v2/alerts")
    return {alert["labels"].get("cluster") for alert in json.loads(alerts or "[]")}
