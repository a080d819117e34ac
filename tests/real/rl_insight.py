"""A real Ray, and jobs on it that log by rl-insight's own client, in an environment of their own."""

from __future__ import annotations

import os
from pathlib import Path

from stepwatch.system.files import last_lines
from tests.real import environments
from tests.real.script import Script
from tests.real.server import Server, free_port

CLIENT = Path(__file__).with_name("rl_insight_client.py")

NODE = "127.0.0.2"
"""Ray takes 127.0.0.1 for a wrong address of a node, and would look for the machine's own."""


def environment() -> Path:
    """The programs of the environment."""
    return environments.programs("rl-insight")


PATIENCE = {
    "RAY_health_check_initial_delay_ms": 60_000,
    "RAY_health_check_period_ms": 30_000,
    "RAY_health_check_timeout_ms": 120_000,
    "RAY_health_check_failure_threshold": 10,
    "RAY_agent_register_timeout_ms": 300_000,
    "RAY_worker_register_timeout_seconds": 300,
    "RAY_raylet_start_wait_time_s": 300,
    "RAY_gcs_rpc_server_reconnect_timeout_s": 300,
    "RAY_gcs_server_request_timeout_seconds": 300,
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": 300,
}
"""A node ends by itself if a part of it is silent for a minute, or takes half a minute to start: on a busy
machine all do."""

OWN = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    **{k: str(v) for k, v in PATIENCE.items()},
}
"""Without the second, Ray asks for a token as soon as someone on this machine has one."""


class RayCluster(Server):
    """One node with its dashboard, which writes the list of targets; its folder is ``temp``."""

    def __init__(self) -> None:
        dashboard = free_port(NODE)
        own = {"AUTOSCALER_METRIC_PORT": str(free_port(NODE)), "DASHBOARD_METRIC_PORT": str(free_port(NODE))}
        super().__init__(
            [], f"http://127.0.0.1:{dashboard}/api/version", env={**os.environ, **OWN, **own}, patience=300
        )
        self.address = f"{NODE}:{free_port(NODE)}"
        self.temp = self.folder / "ray"
        self.command = [
            *(str(environment() / "ray"), "start", "--head", "--block", "--disable-usage-stats"),
            *(f"--node-ip-address={NODE}", f"--port={self.address.partition(':')[2]}"),
            *("--num-cpus=2", "--object-store-memory=100000000", f"--temp-dir={self.temp}"),
            *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"),
            *(
                f"--dashboard-agent-listen-port={free_port(NODE)}",
                f"--ray-client-server-port={free_port(NODE)}",
            ),
            # Ports that are free, in place of 10002 to 19999, among which the other ones may be.
            *("--min-worker-port=0", "--max-worker-port=0"),
        ]

    def check(self) -> None:
        """Fail if it has ended, with the end of its logs."""
        if self.ended:
            parts = (self.temp / "session_latest/logs" / f"{part}.out" for part in ("raylet", "gcs_server"))
            said = (line for log in (self.log, *parts) for line in last_lines(log, 20))
            raise AssertionError("\n".join(("Ray has ended:", *said)))


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
        self.page, self._cluster = f"{NODE}:{port}", cluster

    def check(self) -> None:
        """Fail at once if its cluster has ended: Ray's client waits for it for minutes."""
        self._cluster.check()
