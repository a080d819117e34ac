"""A real Ray, and jobs on it that log by rl-insight's own client, in an environment of their own."""

from __future__ import annotations

import os
from pathlib import Path

from tests.real import environments
from tests.real.script import Script
from tests.real.server import Server, free_port

CLIENT = Path(__file__).with_name("rl_insight_client.py")

NODE = "127.0.0.2"
"""Ray takes 127.0.0.1 for a wrong address of a node, and would look for the machine's own."""


def environment() -> Path:
    """The programs of the environment."""
    return environments.programs("rl-insight")


OWN = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
"""Without the second, Ray asks for a token as soon as someone on this machine has one."""


class RayCluster(Server):
    """One node with its dashboard, which writes the list of targets; its folder is ``temp``."""

    def __init__(self) -> None:
        dashboard = free_port()
        own = {"AUTOSCALER_METRIC_PORT": str(free_port()), "DASHBOARD_METRIC_PORT": str(free_port())}
        super().__init__(
            [], f"http://127.0.0.1:{dashboard}/api/version", env={**os.environ, **OWN, **own}, patience=300
        )
        self.address = f"{NODE}:{free_port()}"
        self.temp = self.folder / "ray"
        self.command = [
            *(str(environment() / "ray"), "start", "--head", "--block", "--disable-usage-stats"),
            *(f"--node-ip-address={NODE}", f"--port={self.address.partition(':')[2]}"),
            *("--num-cpus=2", "--object-store-memory=100000000", f"--temp-dir={self.temp}"),
            *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"),
            *(f"--dashboard-agent-listen-port={free_port()}", f"--ray-client-server-port={free_port()}"),
            # Ports that are free, in place of 10002 to 19999, among which the other ones may be.
            *("--min-worker-port=0", "--max-worker-port=0"),
        ]


class Job(Script):
    """A job on a cluster while the ``with`` block runs, which does what verl's logger does.

    Args:
        cluster: Where it runs.
        url: Of rl-insight's server.
        port: Where its page is served, at the node's address.
    """

    def __init__(self, cluster: RayCluster, url: str, port: int) -> None:
        env = {**os.environ, **OWN, "RL_INSIGHT_SERVER_URL": url}
        super().__init__(environment() / "python", CLIENT, cluster.address, str(port), env=env)
        self.page = f"{NODE}:{port}"
