"""What commands say on an agent: what it does not do, and whether the hub takes what it sends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from stepwatch.config import Config, cluster
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.http_client import Page
from stepwatch.system.terminal import duration

_SENT = re.compile(
    r'^prometheus_remote_storage_queue_highest_sent_timestamp_seconds\{remote_name="hub",[^}]*\} (\S+)$',
    re.MULTILINE,
)
_LATE = 60
"""Seconds: four of the slower scrapes."""
_FIRST = 20
"""Seconds until a sender that starts has sent what it scraped first."""


def require_no_demo(config: Config, *, demo: bool) -> None:
    """Check that no simulated runs would be sent to a hub.

    Raises:
        Refused: This machine is an agent, and the demo is wanted.
    """
    if demo and config.is_agent:
        raise Refused(
            "DEMO=1: this is an agent, which would send simulated runs to the hub. Expected: role: all. "
            "Fix: run the demo on another machine, or write role: all in config.yaml."
        )


def require_hub(config: Config, command: str) -> None:
    """Check that a command which asks Prometheus or Alertmanager has them here.

    Raises:
        Refused: This machine is an agent.
    """
    if config.is_agent:
        raise Refused(
            f"make {command}: this is an agent; ask the hub ({config.hub_url}). "
            f"Expected: role: hub or all in config.yaml. Fix: run `make {command}` on the hub."
        )


def where(config: Config) -> str:
    """Return where the data of an agent go."""
    return (
        f"This is the agent {config.node_name}: rules, notifications and dashboards are on the hub, "
        f"{config.hub_url}."
    )


def closing(config: Config, metrics: Page) -> Iterator[str]:
    """Yield what `up` says last on an agent: where its data go, and whether they arrive.

    Args:
        config: The configuration of an agent.
        metrics: The page of its sender.
    """
    yield where(config)
    deadline = time.monotonic() + _FIRST
    while not (_sent(page := http_client.read(metrics)) or time.monotonic() > deadline):
        time.sleep(0.2)
    yield from backlog(page, "the log of the sender")
    if _sent(page):
        yield "The hub takes its samples."


def backlog(page: str | None, log: str) -> Iterator[str]:
    """Yield what the hub has not taken, by the sender's metrics; nothing where it takes all.

    Args:
        page: The text of its metrics, None where it does not answer.
        log: Where people read what it logs.
    """
    if page is None:
        return
    sent = _sent(page)
    if not sent:
        yield f"The hub has not taken a sample since the sender started: {log} says why."
    elif (late := time.time() - sent) > _LATE:
        yield (
            f"The hub has not taken the samples of the last {duration(late)}: {log} says why. "
            f"They are kept for {cluster.BUFFER} and sent later."
        )


def _sent(page: str | None) -> float:
    """Return the time of the newest sample that the hub took, in Unix seconds; 0 for none."""
    found = _SENT.search(page or "")
    return float(found[1]) if found else 0.0
