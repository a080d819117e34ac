"""A hub as `make up` starts it: passwords of nodes write and do not query, and agents say what is wrong."""

from __future__ import annotations

import html
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
import yaml

from exporter.certificate import expiry
from exporter.credentials import authorization
from exporter.http.exposition import CONTENT_TYPE
from exporter.http.message import Answer, Request
from exporter.http.routes import Routes
from exporter.http.server import Server
from exporter.runs import sender
from exporter.runs.sender import Sender
from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import render_all
from stepwatch.system.environment import CHECKOUT
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
    expires = "stepwatch_agent_certificate_expiry_timestamp_seconds"
    eventually(lambda: query(prometheus, expires))
    (served,) = query(prometheus, expires)
    assert float(served["value"][1]) == expiry(site.certificate.path) > time.time()
    site.agent(NODE, "--revoke")
    assert site.write("later", renewed) == 401


@pytest.mark.parametrize("site", ["newest"], indirect=True)
def test_a_renewed_certificate_is_shown_without_a_restart(site: HubSite) -> None:
    password = site.agent("node-9")
    Certificate.made(site.installation.folder, days=40)  # another one in the same files
    assert site.write("renewed", password, "node-9") == 200


def times(site: HubSite, promql: str) -> list[float]:
    """The times of the samples of a series that the hub has, of a quarter of an hour before and after now."""
    found = query(site.installation.url("prometheus"), f"{promql}[30m] offset -15m")
    return [at for each in found for at, _ in each["values"]]


def longest(moments: list[float]) -> float:
    """The longest time between two of them."""
    return max(after - before for before, after in pairwise(moments))


@pytest.mark.parametrize("site", ["newest"], indirect=True)
@pytest.mark.parametrize(
    ("node", "wrong", "says", "fix"),
    [
        (
            "wrong",
            {"password": "another-word"},
            "401 Unauthorized",
            "`make agent NODE=name RENEW=1` on the hub",
        ),
        pytest.param(
            "http",
            {"scheme": "http"},
            "HTTP request to an HTTPS server",
            "write https:// in hub.url.",
            marks=pytest.mark.world,
        ),
        pytest.param(
            "name",
            {"host": "localhost"},
            "certificate is not valid for 'localhost'",
            "in hub.url, or give the hub",
            marks=pytest.mark.world,
        ),
        pytest.param(
            "revoked", {}, "401 Unauthorized", "`make agent NODE=name RENEW=1`", marks=pytest.mark.world
        ),
        pytest.param(
            "expired", {}, "certificate has expired", "replace agents.cert_file", marks=pytest.mark.world
        ),
    ],
    ids=["wrong password", "http", "another name", "revoked", "expired"],
)
def test_an_agent_says_why_the_hub_takes_nothing_and_loses_nothing_until_that_is_corrected(
    site: HubSite, tmp_path: Path, *, node: str, wrong: dict[str, str], says: str, fix: str
) -> None:
    agent, password, file = made(tmp_path, "newest"), site.agent(node), tmp_path / "password"

    def up(password: str, scheme: str = "https", host: str = "127.0.0.1") -> str:
        file.write_text(f"{password}\n")
        file.chmod(0o600)
        url = f"{scheme}://{host}:{site.installation.ports['agents']}"
        hub = json.dumps({"url": url, "password_file": str(file), "ca_file": str(site.certificate.path)})
        agent.configure(f"role: agent\nnode: {node}\nhub: {hub}\ndiscovery: {{ray: null}}\n{QUICK}")
        done = agent.up()
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    if node == "revoked":
        site.agent(node, "--revoke")
    elif node == "expired":
        site.certificate.expire()
    try:
        shown = up(**{"password": password, **wrong})
        begun = time.time()
        time.sleep(10)
        status = agent.run("status")
        page = urllib.request.urlopen(agent.url("exporter")).read().decode()
        for text in (shown, status.stdout):
            (sentence,) = (line for line in text.splitlines() if " Fix: " in line and "hub" in line)
            assert says in sentence
            assert fix in sentence.partition(" Fix: ")[2]
        assert status.returncode == 1
        assert says in html.unescape(page)

        if "password" in wrong:  # is read at each request
            file.write_text(password)
        elif node == "revoked":
            file.write_text(site.agent(node))
        elif node == "expired":
            Certificate.made(site.installation.folder, days=30)
        else:
            before = agent.parts()
            up(password)
            assert agent.parts() == before  # not even the exporter has another process
        eventually(lambda: agent.run("status").returncode == 0)
        assert "accepts its samples (last " in agent.run("status").stdout
        eventually(lambda: max(times(site, f'up{{node="{node}",job="runs"}}'), default=0) > begun + 20)
        taken = times(site, f'up{{node="{node}",job="runs"}}')
        assert min(taken) < begun
        assert longest(taken) < 5
        written = "".join(file.read_text() for file in (agent.state / "logs").iterdir())
        assert password not in written
        assert "another-word" not in written
    finally:
        agent.run("down")


AHEAD, TAKEN = 500, 480
"""Seconds by which a clock is off, and from which on the sender holds samples in this test. Prometheus
scrapes and takes nothing that is ten minutes ahead."""


@pytest.mark.parametrize("site", ["newest"], indirect=True)
def test_what_a_clock_that_is_ahead_has_stamped_is_taken_once_it_is_the_past(
    site: HubSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender's clock, and the times of what Prometheus scrapes, are moved: programs show no other way."""
    off = AHEAD
    clock = SimpleNamespace(time=lambda: time.time() + off, monotonic=time.monotonic)
    monkeypatch.setattr(sender, "time", clock)
    monkeypatch.setattr(sender, "AHEAD_SECONDS", TAKEN)
    (tmp_path / "own").write_text("a-password")
    (tmp_path / "password").write_text(site.agent("clock"))
    (tmp_path / "password").chmod(0o600)
    hub = {"url": f"{site.url}/api/v1/write", "username": "clock", "ca_file": str(site.certificate.path)}
    relay = Sender({**hub, "password_file": str(tmp_path / "password")}, tmp_path / "own")

    served: list[int] = []

    def stamped(_: Request) -> Answer:
        served.append(round(clock.time() * 1000))
        return Answer("200 OK", CONTENT_TYPE, f"stamped 1 {served[-1]}\n".encode())

    server = Server(
        ("127.0.0.1", 0), Routes({**relay.routes(), "/metrics": {"GET": stamped}}), sender.MOST_BODY
    )
    here = f"127.0.0.1:{server.port}"
    agent = PrometheusServer(site.version, tmp_path, options=("--agent",))
    agent.command = [each.replace(".tsdb.", ".agent.") for each in agent.command]
    (tmp_path / "config.yaml").write_text(
        f'role: agent\nnode: {NODE}\nhub: {{url: "{site.url}", password_file: {tmp_path}/password}}\n'
    )
    files = render_all(load(tmp_path / "config.yaml"), CHECKOUT, OnThisMachine)
    rendered = yaml.safe_load(files[PurePosixPath("prometheus/generated/prometheus.yml")])
    write = {**rendered["remote_write"][0], "url": f"http://{here}/hub/write"}
    write["basic_auth"] = {"username": "internal", "password_file": str(tmp_path / "own")}
    scrape = {"job_name": "own", "static_configs": [{"targets": [here]}]}
    often = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    settings = {
        "storage": rendered["storage"],
        "global": often,
        "scrape_configs": [scrape],
        "remote_write": [write],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    series = 'stamped{node="node-7"}'
    server.start()
    with agent:
        eventually(lambda: relay.faults)
        assert "8m ahead of the hub's" in relay.faults[0]
        assert relay.faults[0].endswith(
            "Fix: correct the clock of this machine, or the hub's (`timedatectl`)."
        )
        time.sleep(5)
        assert times(site, series) == []
        corrected, off, ahead = time.time(), 0, len(served)
        eventually(lambda: times(site, series))
        assert time.time() > corrected + AHEAD - TAKEN - 3
        expected = set(served)
        eventually(lambda: expected <= {round(at * 1000) for at in times(site, series)})
    server.stop()
    relay.stop()
    assert len(expected) > ahead + 10, "after the correction, too"


def test_an_agent_whose_clock_is_behind_says_so_and_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that any server says in its answers."""
    clock = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
    monkeypatch.setattr(sender, "time", clock)
    (tmp_path / "own").write_text("a-password")
    with Answering(body="") as hub:
        relay = Sender(
            {"url": hub.url, "username": "n", "password_file": str(tmp_path / "own")}, tmp_path / "own"
        )
        head = {"content-type": "application/x-protobuf", "authorization": authorization("a-password")}
        later = relay.routes()["/hub/write"]["POST"](Request("POST", "/hub/write", "", head, b"{}"))
        assert not isinstance(later, Answer)
        eventually(later)
        relay.stop()
        assert re.search("1h 0m behind the hub's: .* Fix: correct the clock", relay.faults[0])
