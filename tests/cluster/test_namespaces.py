"""A hub and three agents as users bring them up, each with a network of its own, and faults between them."""

from __future__ import annotations

import math
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Self

from tests.chaos.runs import Runs
from tests.cluster.network import Network
from tests.gpu.driver import Driver
from tests.native.installation import Installation, made
from tests.real import WebhookSink, query
from tests.real.mailbox import Certificate
from tests.real.remote_write import Series, send
from tests.real.waiting import Work, counted, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.world]

AGENTS = ("n1", "n2", "n3")
SENDER = "sender"
"""A machine that sends what is made up, as an agent does."""
CLOCKS = {"right": 0, "behind": -600, "ahead": 590}
"""Nodes of it, and by how many seconds each is off. Prometheus refuses what is ten minutes ahead."""
SCRAPE_SECONDS = 5
EVALUATIONS = 200
"""Of the rules about runs, each 5 s: what any of the alerts here may take."""

OF_ALL = f"intervals: {{scrape: {SCRAPE_SECONDS}s}}\ndiscovery: {{ray: null}}\n"
OF_HUB = """
role: hub
agents: {{listen: 0.0.0.0, cert_file: {folder}/certificate.pem, key_file: {folder}/key.pem}}
receivers: [{{name: sink, webhook: {{url: "{sink}"}}}}]
alerts:
  NodeLost: {{silence: 20s, for: 5s}}
  AgentBacklog: {{behind: 30s, for: 15s}}
  ClockSkew: {{for: 15s}}
"""
OF_AGENT = """
role: agent
node: {node}
hub: {{url: "https://{address}:{port}", password_file: {folder}/password, ca_file: {folder}/certificate.pem}}
"""


class Cluster:
    """The machines, up while a ``with`` block runs; the sick run logs on the first agent's."""

    def __init__(self, folder: Path) -> None:
        self.network = Network(("hub", *AGENTS, SENDER))
        self.machines: dict[str, Installation] = {}
        self.drivers = {name: _driver(folder / f"driver of {name}") for name in AGENTS}
        for name in ("hub", *AGENTS):
            place = folder / name
            place.mkdir()
            self.machines[name] = made(place, "newest")
        self.runs = Runs(dict.fromkeys(("steady", "sick"), self.machines["n1"].folder / "my runs"))
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            opened.enter_context(self.network)
            with self.network.inside("hub"):
                self.sink = opened.enter_context(WebhookSink())
            hub = self.machines["hub"]
            Certificate.made(hub.folder, self.network.address("hub"), days=30)
            hub.environment["STEPWATCH_SECRETS"] = str(hub.folder)
            hub.configure(OF_ALL + OF_HUB.format(folder=hub.folder, sink=self.sink.url))
            self._up("hub", opened)
            self.runs.start()
            opened.callback(self.runs.stop)
            for name in AGENTS:
                self._join(name)
                self._up(name, opened)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _join(self, name: str) -> None:
        """What an operator does for a node: a credential made on the hub, and three keys of config.yaml."""
        hub, machine = self.machines["hub"], self.machines[name]
        (machine.folder / "password").write_text(self.password(name))
        (machine.folder / "password").chmod(0o600)
        shutil.copy(hub.folder / "certificate.pem", machine.folder)
        machine.environment.update(self.drivers[name].environment)
        address, port = self.network.address("hub"), hub.ports["agents"]
        machine.configure(
            OF_ALL + OF_AGENT.format(node=name, address=address, port=port, folder=machine.folder)
        )

    def password(self, name: str) -> str:
        """Of a new node."""
        made = self.run("hub", "agent", name, "--config", str(self.machines["hub"].config))
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def _up(self, name: str, opened: ExitStack) -> None:
        opened.callback(self.run, name, "down")
        self.up(name)

    def up(self, name: str) -> None:
        with self.network.inside(name):
            done = self.machines[name].up()
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        with self.network.inside(name):
            return self.machines[name].run(*words)

    def query(self, promql: str) -> list[dict[str, Any]]:
        with self.network.inside("hub"):
            return query(self.machines["hub"].url("prometheus"), promql)

    def evaluations(self) -> Work:
        page = f"{self.machines['hub'].url('prometheus')}/metrics"
        work = counted("evaluations", page, "prometheus_rule_group_iterations_total", "rl.yml;rl")

        def count() -> float:
            with self.network.inside("hub"):
                return work.count()

        return Work(work.unit, count)

    def wait_until(self, promql: str, *, gone: bool = False) -> None:
        """Wait until the hub has an answer to a query, or none any more."""

        def is_so() -> bool:
            try:
                return bool(self.query(promql)) is not gone
            except AssertionError:  # it is just being started again
                return False

        eventually(
            is_so,
            self.evaluations(),
            EVALUATIONS,
            pause=1,
            seen=lambda: [each["metric"] for each in self.query('ALERTS{alertstate!=""}')],
        )

    def wait_firing(self, alert: str, labels: str, *, gone: bool = False) -> None:
        """Wait until an alert with these labels, as PromQL has them, fires, or does no more."""
        self.wait_until(f'ALERTS{{alertstate="firing",alertname="{alert}",{labels}}}', gone=gone)

    def fired(self) -> set[str]:
        """The names of alerts that reached the webhook, those about Stepwatch's own parts included."""
        return {
            each["labels"]["alertname"] for message in list(self.sink.received) for each in message.alerts
        }

    def send(self, node: str, password: str, series: list[Series]) -> None:
        """Write to the hub as an agent does: over the network and TLS, with the password of a node."""
        hub = self.machines["hub"]
        url = f"https://{self.network.address('hub')}:{hub.ports['agents']}/api/v1/write"
        with self.network.inside(SENDER):
            context = ssl.create_default_context(cafile=hub.folder / "certificate.pem")
            send(url, series, login=(node, password), context=context)

    def longest_gap(self, node: str, minutes: int) -> float:
        """Seconds between two samples of what the node's agent scrapes, at most, of the last minutes."""
        found = self.query(f'up{{node="{node}",job="gpu"}}[{minutes}m]')
        times = [time for each in found for time, _ in each["values"]]
        return max((after - before for before, after in pairwise(times)), default=math.inf)

    def kill(self, name: str) -> None:
        """Kill every process of a machine, before any of them can start another again."""

        def gone() -> bool:
            pids = self.machines[name].pids()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not pids

        eventually(gone)


def _driver(folder: Path) -> Driver:
    folder.mkdir()
    driver = Driver(folder)
    driver.install()
    return driver


@pytest.fixture(name="cluster", scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        for name in AGENTS:
            cluster.wait_until(f'up{{node="{name}",job="gpu"}} == 1')
        cluster.wait_until('count(rl_step{run=~"steady|sick"}) == 2')
        yield cluster


def test_a_sick_run_and_a_sick_gpu_of_nodes_raise_their_alerts_on_the_hub(cluster: Cluster) -> None:
    assert not {"NodeLost", "AgentBacklog", "ClockSkew"} & cluster.fired()
    cluster.runs.sicken("sick")
    cluster.wait_firing("KLExplosion", 'run="sick"')
    cluster.drivers["n2"].tell("gpus=8", "xid=3:79:1")
    cluster.wait_firing("GPUXid", 'instance=~"n2:.+",gpu="3"')
    eventually(lambda: "KLExplosion" in cluster.fired(), cluster.evaluations(), EVALUATIONS)
    assert not cluster.query('ALERTS{run="steady"}')
    assert {each["metric"]["node"] for each in cluster.query('rl_step{run="sick"}')} == {"n1"}


def test_a_node_without_network_is_lost_and_what_it_measured_meanwhile_comes_afterwards(
    cluster: Cluster,
) -> None:
    cluster.network.cut("n3")
    cluster.wait_firing("NodeLost", 'node="n3"')
    assert not cluster.query('ALERTS{alertname="NodeLost",node!="n3"}')
    cluster.network.mend("n3")
    cluster.wait_firing("NodeLost", 'node="n3"', gone=True)
    cluster.wait_until(f'time() - timestamp(up{{node="n3",job="gpu"}}) < {3 * SCRAPE_SECONDS}')
    eventually(
        lambda: cluster.longest_gap("n3", 10) < 1.9 * SCRAPE_SECONDS, cluster.evaluations(), EVALUATIONS
    )


def test_a_slow_line_delays_data_and_loses_none(cluster: Cluster) -> None:
    cluster.network.slow("n2", "24kbit")
    cluster.wait_firing("AgentBacklog", 'node="n2"')
    cluster.network.fast("n2")
    cluster.wait_firing("AgentBacklog", 'node="n2"', gone=True)
    eventually(
        lambda: cluster.longest_gap("n2", 10) < 1.9 * SCRAPE_SECONDS, cluster.evaluations(), EVALUATIONS
    )


def test_a_node_whose_clock_is_off_is_noticed_since_its_alerts_do_not_fire(cluster: Cluster) -> None:
    """Before the hub is killed: a restarted receiver drops what is ten minutes older than its start."""
    passwords = {node: cluster.password(node) for node in CLOCKS}

    def firing(alert: str, instances: str) -> set[str]:
        for node, off in CLOCKS.items():
            cluster.send(node, passwords[node], lost_gpu(node, time.time() + off))
        found = cluster.query(f'ALERTS{{alertstate="firing",alertname="{alert}",instance=~"{instances}"}}')
        return {each["metric"]["instance"] for each in found}

    nodes = "|".join(CLOCKS)
    for alert, instances, expected in (
        ("GPULost", f"({nodes}):9411", {"right:9411"}),
        ("ClockSkew", nodes, {"behind", "ahead"}),
    ):
        eventually(
            lambda alert=alert, instances=instances, expected=expected: firing(alert, instances) == expected,
            cluster.evaluations(),
            EVALUATIONS,
            pause=2,
            seen=lambda: [each["metric"] for each in cluster.query("ALERTS")],
        )
    # The same GPU of all three is lost, and the hub has the data of each, at the time of its node's clock.
    assert firing("GPULost", f"({nodes}):9411") == {"right:9411"}
    for node, off in CLOCKS.items():
        assert cluster.query(f'gpu_up{{node="{node}"}} @ {time.time() + off:.0f}')
    # Nothing else says so: its writes are neither lost nor late nor refused.
    assert not cluster.query(f'ALERTS{{alertname=~"NodeLost|Agent.+",node=~"{nodes}"}}')
    eventually(
        lambda: notified(cluster, "ClockSkew") == {"behind", "ahead"}, cluster.evaluations(), EVALUATIONS
    )


def test_a_hub_that_is_killed_has_the_alerts_of_its_nodes_again(cluster: Cluster) -> None:
    """Its receiver drops what they measured before it started again; docs/cluster.md says so."""
    cluster.kill("hub")
    time.sleep(4 * SCRAPE_SECONDS)  # in which its agents go on
    cluster.up("hub")
    for name in AGENTS:
        cluster.wait_until(f'time() - timestamp(up{{node="{name}",job="gpu"}}) < {3 * SCRAPE_SECONDS}')
    cluster.drivers["n3"].tell("gpus=8", "xid=3:79:1")
    eventually(
        lambda: any(each.startswith("n3:") for each in notified(cluster, "GPUXid")),
        cluster.evaluations(),
        EVALUATIONS,
    )


def test_an_agent_that_is_killed_is_lost(cluster: Cluster) -> None:
    cluster.kill("n1")
    cluster.wait_firing("NodeLost", 'node="n1"')


def notified(cluster: Cluster, alert: str) -> set[str]:
    """The instances of which the webhook got an alert."""
    alerts = [each["labels"] for message in list(cluster.sink.received) for each in message.alerts]
    return {each["instance"] for each in alerts if each["alertname"] == alert}


def lost_gpu(node: str, now: float) -> list[Series]:
    """What an agent writes of a GPU that its driver has lost."""
    target = {"node": node, "job": "gpu", "role": "gpu", "instance": f"{node}:9411"}
    gpu = {**target, "__name__": "gpu_up", "gpu": "3", "uuid": f"GPU-{node}"}
    up = {**target, "__name__": "up"}
    return [(up, [(now, 1.0)]), ({**up, "job": "runs"}, [(now, 1.0)]), (gpu, [(now, 0.0)])]
