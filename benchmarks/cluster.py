"""What a hub takes for many nodes, and an agent for one: simulated nodes of eight GPUs, real Prometheus."""

from __future__ import annotations

import json
import random
import re
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

from benchmarks import logs
from benchmarks.load import training
from benchmarks.measure import ROOT, SHARE_SECONDS, RunExporter, get, memory, samples, shares, table
from exporter.credentials import authorization
from tests.cluster.twice import ALONE, HUB, Twice
from tests.e2e.stack import PAIRS, Stack
from tests.grafana.scraped import SCRAPED
from tests.native.installation import made
from tests.real import PrometheusServer, Server, eventually, free_port, query
from tests.real.listening import Exposing
from tests.real.mailbox import Certificate
from tests.real.remote_write import snappy, write_request

NODES, RUNS = (1, 16, 64), 100
TARGETS, SERIES = 4, 235
"""Of a node, and of each target."""
SCRAPE_SECONDS = 15
WARM_SECONDS = 90.0
RULES = "prometheus_rule_evaluation_duration_seconds_sum"
GROUPS = "prometheus_rule_group_last_duration_seconds"
_VALUE = re.compile(r" (\d[\d.]*(?:e[-+]\d+)?)$", re.MULTILINE)


@table(
    "Prometheus", "nodes", "runs", "series", "samples/s", "RSS, MB", "of a core", "rules, of a core",
    "slowest group, ms",
)  # fmt: skip
def cluster_hub() -> Iterator[tuple[object, ...]]:
    """What Prometheus takes with all rules, for some nodes of eight GPUs and 100 live runs."""
    for nodes in NODES:
        version = PAIRS[-1]
        with tempfile.TemporaryDirectory() as name, _nodes(nodes) as (gpus, hosts):
            jobs = [
                {"job": "gpus", "role": "gpu", "targets": gpus},
                {"job": "hosts", "role": "host", "targets": hosts},
            ]
            with Stack(Path(name), version, scrape=jobs) as stack, ExitStack() as running:
                growing = logs.runs(stack.runs, RUNS)
                stack.wait_until(lambda stack=stack: len(stack.query("rl_step")) == RUNS)
                running.enter_context(training(growing))
                time.sleep(WARM_SECONDS)
                stored, ruled = _value(stack, "prometheus_tsdb_head_samples_appended_total"), _rules(stack)
                [share] = shares(stack.prometheus.pid)
                per_second = (
                    _value(stack, "prometheus_tsdb_head_samples_appended_total") - stored
                ) / SHARE_SECONDS
                rules = (_rules(stack) - ruled) / SHARE_SECONDS
                yield (
                    version[0], nodes, RUNS, f"{_value(stack, 'prometheus_tsdb_head_series'):,.0f}",
                    f"{per_second:,.0f}", f"{memory(stack.prometheus.pid):.0f}", f"{100 * share:.1f} %",
                    f"{100 * rules:.1f} %", f"{1e3 * _value(stack, f'max({GROUPS})'):.0f}",
                )  # fmt: skip


@table(
    "Prometheus", "samples on its pages", "samples/s", "on the wire, kB/s", "agent: RSS, MB", "of a core",
    "all of a Prometheus that keeps them: RSS, MB", "of a core", "receiver, of a core",
)  # fmt: skip
def cluster_agent() -> Iterator[tuple[object, ...]]:
    """What an agent takes for a node of eight GPUs, beside a whole Prometheus, and what its hub takes."""
    for version, flag in (("2.42", "--enable-feature=agent"), ("3.13", "--agent")):
        with tempfile.TemporaryDirectory() as name, _nodes(1) as (gpus, hosts), ExitStack() as running:
            hub, whole, agent = (Path(name) / each for each in ("hub", "whole", "agent"))
            own = free_port()
            scraped = [*gpus, *hosts, f"127.0.0.1:{own}"]
            receiver = _prometheus(running, version, hub, [], "--web.enable-remote-write-receiver")
            keeping = _prometheus(running, version, whole, [*gpus, *hosts])
            _settings(agent, scraped, f"{receiver.url}/api/v1/write")
            command = [
                keeping.tool.server, flag, f"--config.file={agent}/prometheus.yml",
                f"--storage.agent.path={agent}/data", f"--web.listen-address=127.0.0.1:{own}",
            ]  # fmt: skip
            sender = running.enter_context(Server(command, f"http://127.0.0.1:{own}/-/ready"))
            up = partial(query, receiver.url, "up")
            eventually(lambda up=up: len(up()) == len(gpus) + len(hosts) + 1)
            time.sleep(WARM_SECONDS)
            sent = [
                "prometheus_remote_storage_samples_total",
                "prometheus_remote_storage_bytes_total",
            ]
            before = [_exposed(own, each) for each in sent]
            used = shares(sender.pid, keeping.pid, receiver.pid)
            count, size = (
                (_exposed(own, each) - was) / SHARE_SECONDS for each, was in zip(sent, before, strict=True)
            )
            pages = sum(samples(get(f"http://{each}/metrics")) for each in scraped)
            yield (
                version, pages, f"{count:.0f}", f"{size / 1000:.1f}", f"{memory(sender.pid):.0f}",
                f"{100 * used[0]:.1f} %", f"{memory(keeping.pid):.0f}", f"{100 * used[1]:.1f} %",
                f"{100 * used[2]:.1f} %",
            )  # fmt: skip


@table("process", "requests/s", "samples/s", "RSS, MB", "of a core")
def cluster_writes() -> Iterator[tuple[object, ...]]:
    """What 64 nodes' writes of 60,000 series every 15 s cost a hub; the first node's go by its exporter."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        hub = made(Path(name), "newest")
        certificate = Certificate.made(hub.folder, days=30)
        files = json.dumps({"cert_file": str(certificate.path), "key_file": str(certificate.key)})
        hub.environment["STEPWATCH_SECRETS"] = str(hub.folder)
        hub.configure(f"role: hub\nagents: {files}\ndiscovery: {{ray: null}}\n")
        running.callback(hub.run, "down")
        assert hub.up().returncode == 0
        own = Path(name) / "own"
        own.write_text("own-password")
        clients: list[tuple[HTTPConnection, dict[str, str], str]] = []
        for number in range(NODES[-1]):
            node = f"node-{number}"
            password = hub.run("agent", node, "--config", str(hub.config)).stdout.strip()
            context = ssl.create_default_context(cafile=certificate.path)
            to = HTTPSConnection("127.0.0.1", hub.ports["agents"], context=context)
            clients.append((to, {"Authorization": authorization(password, node)}, "/api/v1/write"))
        (secret := Path(name) / "password").write_text(password)
        url = f"https://127.0.0.1:{hub.ports['agents']}/api/v1/write"
        settings = {
            "url": url,
            "username": node,
            "password_file": str(secret),
            "ca_file": str(certificate.path),
        }
        flags = ("--hub", json.dumps(settings), "--password-file", str(own))
        forwarding, idle = (
            running.enter_context(RunExporter(hub.folder / "my runs", *flags)) for _ in range(2)
        )
        to = HTTPConnection(forwarding.address.removeprefix("http://"))
        clients[0] = to, {"Authorization": authorization("own-password")}, "/hub/write"
        pids = {
            found[1]: pid
            for pid in hub.parts()
            if (found := re.search(r"(receiver|prometheus)\.yml", Path(f"/proc/{pid}/cmdline").read_text()))
        }
        _written(clients, WARM_SECONDS)
        counted = 0

        def write() -> None:
            nonlocal counted
            counted = _written(clients, SHARE_SECONDS)

        every = {
            "receiver": pids["receiver"], "Prometheus of the hub": pids["prometheus"],
            "run exporter of a node, without runs": forwarding.pid, "the same, without writes": idle.pid,
        }  # fmt: skip
        used = shares(*every.values(), meanwhile=write)
        for (title, pid), share in zip(every.items(), used, strict=True):
            rate = 0.0 if pid == idle.pid else counted / SHARE_SECONDS
            rate /= NODES[-1] if pid == forwarding.pid else 1
            yield title, f"{rate:.1f}", f"{rate * SERIES:.0f}", f"{memory(pid):.0f}", f"{100 * share:.1f} %"


def _written(clients: Sequence[tuple[HTTPConnection, dict[str, str], str]], seconds: float) -> int:
    """Write as that many nodes, a request for each target; returns the number of requests."""
    begun, count = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        number, target = divmod(count, TARGETS)
        number %= len(clients)
        connection, headers, path = clients[number]
        labels = {"node": f"node-{number}", "job": f"target-{target}", "model": "NVIDIA H100 80GB HBM3"}
        body = snappy(
            write_request(
                (
                    {"__name__": f"gpu_metric_{index // 8}", "gpu": str(index % 8), **labels},
                    [(time.time(), random.random())],
                )
                for index in range(SERIES)
            )
        )
        kind = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
        connection.request(
            "POST",
            path,
            body,
            {**kind, "X-Prometheus-Remote-Write-Version": "0.1.0", "Connection": "keep-alive", **headers},
        )
        answer = connection.getresponse()
        assert answer.status < 300, answer.read()
        answer.read()
        count += 1
        time.sleep(max(0.0, count * SCRAPE_SECONDS / (TARGETS * len(clients)) - passed))
    return count


def _prometheus(
    running: ExitStack, version: str, folder: Path, targets: list[str], *options: str
) -> PrometheusServer:
    _settings(folder, targets)
    return running.enter_context(PrometheusServer(version, folder, options=options))


def _settings(folder: Path, targets: list[str], write_to: str = "") -> None:
    folder.mkdir()
    document = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s"},
        "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": targets}]}],
        **({"remote_write": [{"url": write_to}]} if write_to else {}),
    }
    (folder / "prometheus.yml").write_text(json.dumps(document))


@contextmanager
def _nodes(count: int) -> Iterator[tuple[list[str], list[str]]]:
    """The addresses of the GPU exporters and of the node_exporters of so many nodes."""
    with ExitStack() as running:
        gpus, hosts = [], []
        for number in range(count):
            for addresses, page in (
                (gpus, _of_node(_gpu_page(), number)),
                (hosts, _of_node("\n".join(SCRAPED["node"]()), number)),
            ):
                server = running.enter_context(Exposing(page))
                addresses.append(f"127.0.0.1:{server.port}")
        yield gpus, hosts


@cache
def _gpu_page() -> str:
    """The page of the real exporter with its simulated eight GPUs."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "exporter.gpu", "--backend=demo", f"--port={port}"]
    with Server(command, f"{address}/-/healthy", cwd=ROOT):
        eventually(lambda: b"gpu_up{" in get(f"{address}/metrics"), limit=60)
        return get(f"{address}/metrics").decode()


def _of_node(text: str, number: int) -> Callable[[str], str]:
    """A page whose cards are this node's own, and whose values move at each look."""
    text = text.replace("GPU-", f"GPU-{number:04}")
    dice = random.Random(number)

    def moved(found: re.Match[str]) -> str:
        value = float(found[1])
        return found[0] if value in (0, 1) else f" {value * dice.gauss(1, 0.01):.6g}"

    return lambda _: _VALUE.sub(moved, text)


def _rules(stack: Stack) -> float:
    return _value(stack, f"sum({RULES})")


def _value(stack: Stack, promql: str) -> float:
    return float(stack.query(promql)[0]["value"][1])


def _exposed(port: int, metric: str) -> float:
    """The sum of a metric's samples on a page."""
    page = get(f"http://127.0.0.1:{port}/metrics").decode()
    return sum(float(each) for each in re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", page, re.MULTILINE))


@table("alert", "run or GPU", "one machine, s after the first", "hub and agent", "later by, s")
def cluster_alerts() -> Iterator[tuple[object, ...]]:
    """When each alert reaches the receiver of one machine, and that of a hub with an agent."""
    with tempfile.TemporaryDirectory() as name, Twice(Path(name)) as twice:
        twice.go_wrong()
        alone, hub = (twice.came()[place] for place in (ALONE, HUB))
        began = min(alone.values())
        for alert, run, gpu, job in sorted(alone.keys() & hub.keys(), key=alone.__getitem__):
            at, later = alone[alert, run, gpu, job], hub[alert, run, gpu, job]
            yield alert, run or gpu or job, f"{at - began:.0f}", f"{later - began:.0f}", f"{later - at:+.1f}"
