"""The state of a hub's agents: from credentials, the page of its write door, and its Prometheus."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.door.agent_access import Credentials
from stepwatch.config import Config
from stepwatch.services import agent
from stepwatch.system import http_client
from stepwatch.system.http_client import metric
from stepwatch.system.terminal import Say, ago, duration, table

_WRITTEN = re.compile(r'^stepwatch_agent_last_write_timestamp_seconds\{node="([^"]+)"\} (\S+)$', re.MULTILINE)
_REFUSED = re.compile(
    r'^stepwatch_agent_refused_total\{node="([^"]*)",reason="(\w+)"\} ([1-9]\S*)$', re.MULTILINE
)
_TAKES = "stepwatch_agent_refused_total{"
"""Only the door of a hub has it on its page."""
_EXPIRY = "stepwatch_agent_certificate_expiry_timestamp_seconds"

_RUNS = 'count by (node, state) (max by (cluster, run, node, state) (rl_run_state{node!=""}) == 1)'
_LOST = 'group by (alertname, node) (ALERTS{alertname="NodeLost",alertstate="firing"})'


def page(config: Config) -> str | None:
    """Return the metrics page of the door, ``None`` if it does not answer."""
    return http_client.read(f"http://{config.address('prometheus')}/-/door/metrics")


def nodes(credentials: Path, page: str | None, lost: frozenset[str] = frozenset()) -> list[str]:
    """Return a table of the nodes that have a credential, empty if none has.

    Args:
        credentials: Their folder.
        page: That of the door.
        lost: The nodes for which NodeLost fires.
    """
    known = Credentials(credentials)
    names = sorted({*known.nodes(), *known.unusable})
    written = {name: float(value) for name, value in _WRITTEN.findall(page or "")}

    def state(node: str) -> str:
        if node in known.unusable:
            return f"unusable file; `make agent NODE={node} RENEW=1` replaces it"
        if page is None:
            return "unknown: the hub does not answer"
        how = ago(time.time() - written[node]) if node in written else "none since the door was started"
        refused = f"; refused requests: {text}" if (text := _refused(page, node)) else ""
        return f"{how}{': NodeLost' if node in lost else ''}{refused}"

    return table([("node", "last write"), *((name, state(name)) for name in names)]) if names else []


def show(config: Config, credentials: Path, say: Say) -> bool:
    """Report agents and their runs; return whether agents can write, as far as the door's page says."""
    if (door := page(config)) is None:
        say("\nAgents: unknown, because the door does not answer.")
        return False
    if _TAKES not in door:  # config.yaml was changed since `up`, which is said elsewhere
        return True
    found = _asked(config)
    say(f"\nThis is a hub. {agent.on_hub(config)}")
    lost = frozenset(
        labels["node"] for labels, _ in found or () if labels.get("alertname") and "node" in labels
    )
    for line in nodes(credentials, door, lost) or ["No node has a token yet."]:
        say(f"  {line}")
    if text := _refused(door, ""):
        say(f"Requests refused before a node was known: {text}.")
    runs = [
        f"{count} {labels['state']} on {labels['node']}" for labels, count in found or () if "state" in labels
    ]
    unknown = "unknown, because Prometheus does not answer"
    say(f"Runs of agents: {unknown if found is None else ', '.join(sorted(runs)) or 'none yet'}.")
    return _certificate(config, door, say)


def _certificate(config: Config, door: str, say: Say) -> bool:
    file = config.agents.cert_file
    if not file:
        return True
    expiry = metric(door, _EXPIRY)
    left = None if expiry is None else expiry - time.time()
    if left is None:
        say(f"Agents cannot connect: {file} or its key cannot be used; the log of the door says why.")
    elif left <= 0:
        say(f"Agents cannot connect: {file} has expired. Fix: replace it with a new one.")
    else:
        say(f"The certificate for agents expires in {duration(left)}.")
    return left is not None and left > 0


def _refused(page: str, node: str) -> str:
    """How many requests of a node were refused since the door was started, by reason."""
    counts = [(reason, float(count)) for name, reason, count in _REFUSED.findall(page) if name == node]
    return ", ".join(f"{count:.0f} ({reason})" for reason, count in counts)


def _asked(config: Config) -> Sequence[tuple[Mapping[str, str], int]] | None:
    promql = urllib.parse.quote(f"{_RUNS} or {_LOST}")
    answer = http_client.read(f"http://{config.address('prometheus')}/api/v1/query?query={promql}")
    if answer is None:
        return None
    result: list[Any] = json.loads(answer)["data"]["result"]
    return [(each["metric"], int(float(each["value"][1]))) for each in result]
