"""Messages of commands on an agent and on a hub."""

from __future__ import annotations

from stepwatch.config import Config
from stepwatch.schema.errors import Refused


def require_no_demo(config: Config, *, demo: bool) -> None:
    """Refuse the demo on an agent, which would send simulated runs to a hub."""
    if demo and config.is_agent:
        raise Refused(
            "DEMO=1: this machine is an agent and would send simulated runs to the hub. Expected: role: all. "
            "Fix: run the demo on another machine, or write role: all in config.yaml."
        )


def require_hub(config: Config, command: str) -> None:
    """Refuse on an agent a command which asks Prometheus or Alertmanager: they are on the hub."""
    if config.is_agent:
        raise Refused(
            f"make {command}: this machine is an agent of the hub {config.hub_url}. Expected: role: hub or "
            f"all in config.yaml. Fix: run `make {command}` on the hub."
        )


def where(config: Config) -> str:
    """Return where the data of an agent go."""
    return (
        f"This is the agent {config.node_name}: rules, notifications and dashboards are on the hub, "
        f"{config.hub_url}."
    )


def on_hub(config: Config) -> str:
    """Return what the user of a hub that runs may do next."""
    agents = config.agents
    kind = "https" if agents.cert_file else "http, on this machine alone"
    return (
        f"Agents connect to {agents.listen}, port {config.ports.agents} ({kind}). "
        "`make agent NODE=name` prints the password of a node."
    )
