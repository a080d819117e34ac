"""The write door: real agents write through it to a real hub, and nothing else passes."""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.door.agent_access import new_token
from exporter.door.agents import MOST_BODY, MOST_CLIENTS, MOST_HANDSHAKES
from exporter.door.write_request import MOST_PLAIN, pack
from stepwatch.config import load
from stepwatch.operate.hub import show
from stepwatch.services.agent import Sender
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.files import last_lines
from tests.door.conftest import Door, before
from tests.door.remote_write import CERTIFICATES, AgentServer, one, sample, series, varint
from tests.real import PrometheusServer, eventually, free_port, query
from tests.real.asking import Reply, ask
from tests.real.credentials import protected, sign_in
from tests.real.waiting import in_time

WRITE = "/api/v1/write"
WROTE = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}


@dataclass
class HubSite:
    """A hub: its Prometheus, its door, and the files that the door reads."""

    prometheus: PrometheusServer
    door: Door
    address: str
    folder: Path

    def admit(self, node: str) -> str:
        """Make a credential; returns the token."""
        token, digest = new_token()
        (self.folder / "agents" / node).write_text(digest)
        return token

    def certify(self, certificate: str, key: str = "hub-key.pem") -> None:
        for name, source in (("hub.pem", certificate), ("hub-key.pem", key)):
            shutil.copyfile(CERTIFICATES / source, self.folder / "new")
            (self.folder / "new").chmod(0o600)
            (self.folder / "new").replace(self.folder / name)

    def connection(self, timeout: float = 120) -> http.client.HTTPSConnection:
        trusting = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
        return http.client.HTTPSConnection(self.address, timeout=timeout, context=trusting)

    def write(
        self, body: bytes, token: str | None, method: str = "POST", path: str = WRITE, **headers: str
    ) -> Reply:
        named = {**WROTE, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if token is not None:
            named["Authorization"] = f"Bearer {token}"
        with closing(self.connection()) as connection:
            connection.request(method, path, body, named)
            with connection.getresponse() as answer:
                return Reply(answer.status, answer.headers, answer.read())

    def metric(self, name: str, **labels: str) -> float | None:
        inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
        line = f"stepwatch_agent_{name}{{{inside}}} " if inside else f"stepwatch_agent_{name} "
        for each in ask(self.door.address, "/metrics").body.decode().splitlines():
            if each.startswith(line):
                return float(each.removeprefix(line))
        return None

    def refused(self, reason: str, node: str = "") -> float:
        return self.metric("refused_total", node=node, reason=reason) or 0

    def stored(self, promql: str) -> list[dict[str, str]]:
        return [each["metric"] for each in query(self.prometheus.url, promql)]

    def log(self) -> str:
        return self.door.server.log.read_text()


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubSite]:
    folder = tmp_path_factory.mktemp("hub")
    access, port = folder / "credentials", free_port()
    options = (protected(access), "--web.enable-remote-write-receiver")
    (folder / "agents").mkdir()
    (folder / "prometheus.yml").write_text("storage: {tsdb: {out_of_order_time_window: 1h}}\n")
    prometheus = PrometheusServer("3.13", folder, options=options)
    sign_in(access, prometheus.port)
    flags = (
        f"--agents-port={port}",
        f"--agents-credentials={folder / 'agents'}",
        f"--agents-cert={folder / 'hub.pem'}",
        f"--agents-key={folder / 'hub-key.pem'}",
    )
    with ExitStack() as stack:
        stack.enter_context(prometheus)
        door = stack.enter_context(before(f"127.0.0.1:{prometheus.port}", access, *flags))
        hub = HubSite(prometheus, door, f"127.0.0.1:{port}", folder)
        # It begins without a certificate.
        eventually(lambda: "Agents cannot write until then." in hub.log())
        assert "hub.pem: cannot be read (No such file or directory). Expected" in hub.log()
        hub.certify("hub.pem")
        eventually(lambda: hub.metric("certificate_expiry_timestamp_seconds") is not None)
        yield hub


@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_an_agent_writes_and_an_outage_of_the_hub_loses_nothing(hub, tmp_path, version):
    node = f"node-{version}"
    token = hub.admit(node)
    assert hub.metric("credentials", node=node) == 1
    assert hub.metric("last_write_timestamp_seconds", node=node) is None
    own = f'up{{node="{node}"}}'
    with AgentServer(version, tmp_path / "agent", f"https://{hub.address}", token, {"node": node}) as agent:
        eventually(lambda: hub.stored(own))
        assert -60 < hub.metric("delay_seconds", node=node) < 600
        assert time.time() - 600 < hub.metric("last_write_timestamp_seconds", node=node) <= time.time()
        assert hub.metric("samples_total", node=node) > 0
        assert hub.metric("received_bytes_total", node=node) > 0
        assert [hub.refused(reason, node) for reason in ("node_label", "size", "format", "clock")] == [0] * 4

        hub.prometheus.kill()
        eventually(lambda: "Agents retry." in hub.log())
        begun, taken = time.time(), hub.metric("samples_total", node=node)
        assert hub.write(one("alone", node), token).status == 503
        retried = "prometheus_remote_storage_samples_retried_total"
        eventually(lambda: _sum(agent, retried) > 0)
        newest = "prometheus_remote_storage_highest_timestamp_in_seconds"
        eventually(lambda: _sum(agent, newest) > begun + 4)
        missed = time.time()
        hub.prometheus.start()

        eventually(
            lambda: hub.metric("samples_total", node=node) > taken,
            seen=lambda: "\n".join(
                line for log in (hub.prometheus.log, hub.door.server.log) for line in last_lines(log, 20)
            ),
        )
        counts = [f"count_over_time({own}[600s] @ {at:.3f})" for at in (missed, begun)]
        eventually(lambda: hub.stored(f"{counts[0]} - {counts[1]} >= 2"))
        dropped = (
            "prometheus_remote_storage_samples_dropped_total",
            "prometheus_remote_storage_samples_failed_total",
        )
        assert [_sum(agent, name) for name in dropped] == [0, 0]


def _sum(agent: PrometheusServer, name: str) -> float:
    lines = ask(f"127.0.0.1:{agent.port}", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


def test_an_agent_refuses_an_expired_certificate_and_takes_its_renewal(hub, tmp_path):
    token = hub.admit("late")
    assert hub.write(one("expiry", "late"), token).status in (200, 204)
    hub.certify("expired.pem")
    eventually(lambda: hub.metric("certificate_expiry_timestamp_seconds") < time.time())
    assert "has expired" in hub.log()
    with AgentServer("3.13", tmp_path / "agent", f"https://{hub.address}", token, {"node": "late"}) as agent:
        eventually(lambda: _sum(agent, "prometheus_remote_storage_samples_retried_total") > 0)
        assert "certificate has expired" in agent.log.read_text()
        (fault,) = Sender(f"{agent.url}/metrics", agent.log).faults("")
        assert "certificate has expired" in fault
        assert "Fix: " in fault
        assert hub.metric("samples_total", node="late") == 1
        assert ask(hub.door.address, "/-/healthy").status == 200

        hub.certify("hub.pem", "other-key.pem")
        eventually(lambda: "The last one stays in force." in hub.log())
        hub.certify("renewed.pem")
        eventually(lambda: hub.metric("samples_total", node="late") > 1)
        assert hub.metric("certificate_expiry_timestamp_seconds") == 4891363200


def test_only_a_token_of_a_node_opens_it_and_a_revoked_one_no_longer_does(hub):
    token, before = hub.admit("known"), hub.refused("credential")
    assert hub.write(one("opened", "known"), token).status in (200, 204)
    with closing(hub.connection()) as kept:  # a connection that is kept is no way around

        def status(**headers: str) -> int:
            kept.request("POST", WRITE, one("opened", "known"), {**WROTE, **headers})
            with kept.getresponse() as answer:
                text = answer.read().decode()
                assert token not in text
                return answer.status

        assert status(Authorization=f"Bearer {token}") in (200, 204)
        assert status(Authorization=f"Bearer {token}x") == 401
        assert status(Authorization=f"Basic {token}") == 401
        assert status(Authorization="Bearer ") == 401
        assert status() == 401
        (hub.folder / "agents" / "known").unlink()
        assert status(Authorization=f"Bearer {token}") == 401
    assert hub.refused("credential") == before + 5
    assert hub.metric("credentials", node="known") is None
    (hub.folder / "agents" / "broken").write_text("no hash")
    assert hub.write(one("opened", "broken"), "no hash").status == 401
    assert hub.metric("credentials", node="broken") is None
    assert "(credential)" in hub.log()
    assert token not in hub.log()


def test_the_series_of_another_node_are_refused_with_all_of_their_request(hub):
    token, other = hub.admit("honest"), hub.admit("other")
    for foreign in (["other"], ["honest", "other"], ["honest", None]):
        stamp = int(time.time() * 1000)
        labels = [[("__name__", "claimed"), *([("node", node)] if node else [])] for node in foreign]
        refused = hub.write(pack(b"".join(series(each, sample(1, stamp)) for each in labels)), token)
        assert refused.status == 403
        assert b"Fix: " in refused.body
    assert hub.write(one("claimed_rightly", "honest"), token).status in (200, 204)
    eventually(lambda: hub.stored("claimed_rightly"))
    assert not hub.stored("claimed")
    assert hub.refused("node_label", "honest") == 3
    assert hub.refused("node_label", "other") == 0
    assert hub.metric("samples_total", node="honest") == 1
    assert "node honest (node_label)" in hub.log()
    assert other not in hub.log()


def test_samples_that_prometheus_takes_for_the_future_are_refused_in_words(hub):
    token = hub.admit("fast")
    assert hub.write(one("of_tomorrow", "fast", ago=-590), token).status in (200, 204)
    refused = hub.write(one("of_tomorrow", "fast", ago=-620), token)
    assert refused.status == 400
    assert b"ahead of the hub's clock. Expected: at most 600 s" in refused.body
    assert b"Fix: correct the clock of the node" in refused.body
    assert hub.refused("clock", "fast") == 1
    assert hub.metric("samples_total", node="fast") == 1
    assert "node fast (clock)" in hub.log()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/query?query=1", 404),
        ("POST", "/api/v1/query", 404),
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("POST", "/-/reload", 404),
        ("POST", "/-/quit", 404),
        ("POST", "/api/v1/write/", 404),
        ("POST", "/api/v1/write?x=1", 404),
        ("POST", "//api/v1/write", 404),
        ("POST", "/x/../api/v1/write", 404),
        ("POST", "/api/v1/admin/tsdb/delete_series?match[]=up", 404),
        ("GET", WRITE, 405),
        ("DELETE", WRITE, 405),
        ("PUT", WRITE, 405),
    ],
)
def test_nothing_but_writing_passes(hub, method, path, status):
    token, before = hub.admit("curious"), hub.refused("path")
    assert hub.write(b"", token, method, path).status == status
    assert hub.refused("path") == before + 1


def test_what_is_not_a_write_request_is_refused_and_costs_little(hub):
    token = hub.admit("garbled")
    begun = _used(hub)
    bomb = varint(1 << 32) + b"\xfe\x01\x00" * 100_000
    right = one("x", "garbled")
    assert hub.write(bomb, token).status == 413
    assert hub.write(varint(MOST_PLAIN + 1) + b"\0", token).status == 413
    assert hub.write(bytes(MOST_BODY + (1 << 20)), token).status == 413
    assert hub.refused("size", "garbled") == 3
    for garbage in (b"", b"\xff" * 99, b"garbage", right[:-1], pack(b"garbage"), varint(MOST_PLAIN) + b"\0"):
        assert hub.write(garbage, token).status == 400
    second = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
    assert hub.write(right, token, Content_Type=second).status == 415
    assert hub.write(right, token, Content_Encoding="gzip").status == 415
    assert hub.refused("format", "garbled") == 8
    assert hub.metric("samples_total", node="garbled") == 0
    assert hub.write(right, token).status in (200, 204)
    assert _used(hub) - begun < 10
    assert _resident(hub) < 400 << 20


def test_a_flood_of_agents_leaves_its_own_pages_and_late_clients_go(hub):
    token = hub.admit("patient")
    silent, handshakes = [], []
    with ExitStack() as stack:
        host, port = hub.address.split(":")
        trusting = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
        for _ in range(30):
            raw = stack.enter_context(socket.create_connection((host, int(port)), 60))
            client = stack.enter_context(trusting.wrap_socket(raw, server_hostname=host))
            client.sendall(b"POST /api/v1/write HTTP/1.1\r\n")
            silent.append(client)
        for _ in range(MOST_HANDSHAKES + MOST_CLIENTS + 200):
            with suppress(OSError):
                handshakes.append(stack.enter_context(socket.create_connection((host, int(port)), 5)))
        assert _open_files(hub) < 2 * (MOST_CLIENTS + MOST_HANDSHAKES)
        begun = time.monotonic()
        assert ask(hub.door.address, "/-/healthy").status == 200
        assert in_time(time.monotonic() - begun, 5)
        for client in silent:
            with suppress(OSError):
                assert client.recv(1) == b""
    assert hub.write(one("after", "patient"), token).status in (200, 204)


def _used(hub: HubSite) -> float:
    fields = Path(f"/proc/{hub.door.server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _resident(hub: HubSite) -> int:
    return int(Path(f"/proc/{hub.door.server.pid}/statm").read_text().split()[1]) * 4096


def _open_files(hub: HubSite) -> int:
    return len(list(Path(f"/proc/{hub.door.server.pid}/fd").iterdir()))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--agents-listen=0.0.0.0",), "unencrypted"),
        (("--agents-listen=0.0.0.0", "--agents-cert=x"), "only one of them"),
    ],
)
def test_tokens_never_pass_the_network_unencrypted(tmp_path, flags, says):
    command = [sys.executable, "-m", "exporter.door", f"--agents-credentials={tmp_path}", *flags]
    refused = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert says in refused.stderr


def test_on_loopback_it_needs_no_certificate(tmp_path):
    token, digest = new_token()
    (tmp_path / "node-7").write_text(digest)
    port = free_port()
    flags = (f"--agents-port={port}", f"--agents-credentials={tmp_path}")
    with before("127.0.0.1:1", tmp_path, *flags):
        reply = ask(
            f"127.0.0.1:{port}", WRITE, "POST", one("x", "node-8"), Authorization=f"Bearer {token}",
            Content_Type="application/x-protobuf", Content_Encoding="snappy",
        )  # fmt: skip
        assert reply.status == 403


def test_status_shows_nodes_refusals_runs_and_an_expired_certificate(hub: HubSite, tmp_path: Path) -> None:
    ports = {"door": hub.door.address.rpartition(":")[2], "prometheus": hub.prometheus.port}
    config = tmp_path / "config.yaml"
    config.write_text(
        "role: hub\nagents: {cert_file: hub.pem, key_file: hub-key.pem}\nports: "
        f"{{door: {ports['door']}, prometheus: {ports['prometheus']}}}\n"
    )
    for name in ("hub.pem", "hub-key.pem"):
        shutil.copyfile(CERTIFICATES / name, tmp_path / name)

    def shown() -> tuple[bool, list[str]]:
        said: list[str] = []
        return show(load(config), hub.folder / "agents", said.append), said

    token = hub.admit("shown")
    hub.admit("unseen")
    hub.certify("hub.pem")
    eventually(lambda: shown()[0])
    assert hub.write(b"", None).status == 401
    assert hub.write(one("x", "another"), token).status == 403
    stamp = int(time.time() * 1000)
    states = [("a", "running", 1), ("b", "running", 1), ("b", "failed", 0), ("c", "failed", 1)]
    sent = [
        series(
            [("__name__", "rl_run_state"), ("node", "shown"), ("run", run), ("state", state)],
            sample(value, stamp),
        )
        for run, state, value in states
    ]
    alert = [("__name__", "ALERTS"), ("alertname", "NodeLost"), ("alertstate", "firing"), ("node", "shown")]
    body = pack(b"".join([*sent, series(alert, sample(1, stamp))]))
    assert hub.write(body, token).status in (200, 204)
    eventually(lambda: hub.stored("rl_run_state") and hub.stored("ALERTS"))

    sound, said = shown()
    text = "\n".join(said)
    assert sound
    assert said[0].startswith("\nThis is a hub. Agents connect to 127.0.0.1, port 9415 (https).")
    (line,) = (each for each in said if each.startswith("  shown "))
    assert re.search(r"\d+ (s|min) ago: NodeLost; refused requests: 1 \(node_label\)$", line)
    (line,) = (each for each in said if each.startswith("  unseen "))
    assert line.endswith("none since the door was started")
    assert re.search(r"Requests refused before a node was known: \d+ \(credential\)", text)
    assert "Runs of agents: 1 failed on shown, 2 running on shown." in said
    assert said[-1].startswith("The certificate for agents expires in ")

    hub.certify("expired.pem")
    eventually(lambda: not shown()[0])
    assert "has expired. Fix: replace it" in shown()[1][-1]
    hub.certify("hub.pem")
    eventually(lambda: shown()[0])


def test_its_own_pages_answer_no_name_of_another_site(hub: HubSite) -> None:
    assert ask(hub.door.address, "/metrics", Host="evil.example").status == 403
    assert ask(hub.door.address, "/other").status == 404
