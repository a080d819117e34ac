"""A hub as `make up` starts it: passwords of nodes write and do not query, and agents say what is wrong."""

from __future__ import annotations

import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporter.certificate import expiry
from exporter.credentials import authorization
from stepwatch.services.agent import Sender
from stepwatch.system import http_client
from tests.cluster.hub import QUICK
from tests.native.installation import VERSIONS, Installation, made
from tests.real import PrometheusServer, query
from tests.real.answering import Answering
from tests.real.mailbox import Certificate
from tests.real.remote_write import send
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

NODE = "node-7"


@dataclass
class HubSite:
    """A hub with a certificate for 127.0.0.1 alone."""

    installation: Installation
    certificate: Certificate
    version: str

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.installation.ports['agents']}"

    def agent(self, *words: str) -> str:
        """What `make agent` prints."""
        done = self.installation.run("agent", *words, "--config", str(self.installation.config))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, name: str, password: str, node: str = NODE) -> int:
        """Write a sample of now; returns the status of the answer."""
        context = ssl.create_default_context(cafile=self.certificate.path)
        try:
            send(
                f"{self.url}/api/v1/write",
                [({"__name__": name, "node": node}, [(time.time(), 1.0)])],
                login=(node, password),
                context=context,
            )
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return refusal.code
        return 200


def status_of(request: urllib.request.Request, context: ssl.SSLContext | None = None) -> int:
    """The status of the answer to a request that is refused."""
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(request, context=context)
    refusal.value.close()
    return refusal.value.code


@pytest.fixture(name="site", scope="module")
def _site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubSite]:
    hub = made(tmp_path_factory.mktemp("hub"), request.param)
    certificate = Certificate.made(hub.folder, days=30)
    hub.environment["STEPWATCH_SECRETS"] = str(hub.folder)
    files = json.dumps({"cert_file": str(certificate.path), "key_file": str(certificate.key)})
    hub.configure(f"role: hub\nagents: {files}\ndiscovery: {{ray: null}}\n{QUICK}")
    done = hub.up()
    assert done.returncode == 0, done.stdout + done.stderr
    yield HubSite(hub, certificate, VERSIONS[request.param][0])
    hub.run("down")


@pytest.mark.parametrize("site", VERSIONS, indirect=True)
def test_a_password_of_a_node_writes_and_does_not_query_and_a_revoked_one_does_neither(site: HubSite) -> None:
    prometheus = site.installation.url("prometheus")
    password = site.agent(NODE)
    assert site.write("opened", password) == 200
    eventually(lambda: query(prometheus, "opened"))

    signed_in = {"Authorization": authorization(password, NODE)}
    context = ssl.create_default_context(cafile=site.certificate.path)
    for path in ("query?query=opened", "series?match[]=opened", "labels"):
        asked = urllib.request.Request(f"{site.url}/api/v1/{path}", headers=signed_in)
        assert status_of(asked, context) == 422
    assert status_of(urllib.request.Request(f"{prometheus}/api/v1/labels", headers=signed_in)) == 401

    renewed = site.agent(NODE, "--renew")
    assert [site.write("later", each) for each in (password, renewed)] == [401, 200]
    status = site.installation.run("status")
    assert status.returncode == 0, status.stdout
    assert f"\n  {NODE}" in status.stdout
    assert "The certificate for agents expires in 29d" in status.stdout
    (served,) = query(prometheus, "stepwatch_agent_certificate_expiry_timestamp_seconds")
    assert float(served["value"][1]) == expiry(site.certificate.path) > time.time()
    site.agent(NODE, "--revoke")
    assert site.write("later", renewed) == 401


@pytest.mark.parametrize("site", ["newest"], indirect=True)
def test_a_renewed_certificate_is_shown_without_a_restart(site: HubSite) -> None:
    password = site.agent("node-9")
    Certificate.made(site.installation.folder, days=40)  # another one in the same files
    assert site.write("renewed", password, "node-9") == 200


@pytest.mark.parametrize("site", ["newest"], indirect=True)
@pytest.mark.parametrize(
    ("scheme", "host", "says", "fix"),
    [
        ("https", "127.0.0.1", "401 Unauthorized", "`make agent NODE=name RENEW=1` on the hub"),
        ("http", "127.0.0.1", "HTTP request to an HTTPS server", "write https:// in hub.url"),
        ("https", "localhost", "certificate is not valid|certificate is valid|SANs", "hub.url"),
    ],
    ids=["wrong password", "http", "name"],
)
def test_an_agent_says_in_one_sentence_why_it_cannot_write_and_the_fix(
    site: HubSite, tmp_path: Path, *, scheme: str, host: str, says: str, fix: str
) -> None:
    (tmp_path / "password").write_text("another")
    write = {
        "name": "hub",
        "url": f"{scheme}://{host}:{site.installation.ports['agents']}/api/v1/write",
        "basic_auth": {"username": NODE, "password_file": str(tmp_path / "password")},
        "tls_config": {"ca_file": str(site.certificate.path)},
        "queue_config": {"batch_send_deadline": "1s"},
    }
    agent = PrometheusServer(site.version, tmp_path)
    own = {"job_name": "own", "static_configs": [{"targets": [f"127.0.0.1:{agent.port}"]}]}
    often = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    settings = {"global": often, "scrape_configs": [own], "remote_write": [write]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    with agent:
        sender = Sender(f"{agent.url}/metrics", agent.log)

        def said() -> list[str]:
            """Once it has tried to send, and its log says how that ended."""
            return [each for each in sender.faults(http_client.read(sender.metrics)) if "Fix: " in each]

        found: list[str] = []
        eventually(lambda: found.extend(said()) or found)
        (sentence,) = found
        assert re.search(says, sentence)
        assert fix in sentence.partition("Fix: ")[2]


def test_an_agent_says_that_its_clock_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the time that any server says in its answers."""
    hour = 3600
    with Answering(body="") as hub:
        labels = f'{{remote_name="hub",url="{hub.url}/api/v1/write"}}'
        for off, words in ((hour, "1h 0m ahead of the hub's"), (-hour, "59m 59s behind|1h 0m behind")):
            monkeypatch.setattr(http_client, "time", SimpleNamespace(time=lambda off=off: time.time() + off))
            page = f"prometheus_remote_storage_queue_highest_sent_timestamp_seconds{labels} {time.time()}\n"
            (said,) = Sender(hub.url, tmp_path / "log").faults(page)
            assert re.search(words, said)
            assert said.endswith("Fix: correct the clock of this machine, or the hub's (`timedatectl`).")
