"""A hub's agents: who may write (``python -m stepwatch agent``), and what `status` shows of them."""

from __future__ import annotations

import json
import secrets
import sys
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.certificate import expiry
from exporter.credentials import hashed
from exporter.installation import adapt
from stepwatch.config import Config, load
from stepwatch.config.cluster import NODE_NAME
from stepwatch.schema.errors import Refused
from stepwatch.services import agent, agent_users
from stepwatch.system import http_client
from stepwatch.system.terminal import Say, ago, duration, table

_RUNS = 'count by (node, state) (max by (cluster, run, node, state) (rl_run_state{node!=""}) == 1)'
_LOST = 'group by (alertname, node) (ALERTS{alertname="NodeLost",alertstate="firing"})'
_LAST = "stepwatch_agent_last_write_timestamp_seconds"
_WRITTEN = f'max by (written, node) (label_replace({_LAST}, "written", "1", "", ""))'

_Series = Sequence[tuple[Mapping[str, str], float]]


def credential(config: Path, folder: Path, node: str | None, *, renew: bool, revoke: bool) -> int:
    """Make, renew, revoke or list users of nodes; only the password goes to stdout. Raises ``Refused``."""
    known, users = load(config), agent_users.nodes(folder)
    if node is None:
        if renew or revoke:
            raise Refused("NODE: missing. Expected the name of a node. Fix: `make agent NODE=node-7 ...`.")
        for line in nodes(users, _asked(known)) or ["No node may write. `make agent NODE=node-7` adds one."]:
            _write_error(line)
        return 0
    if not NODE_NAME.fullmatch(node):
        raise Refused(
            f"NODE: {node[:100]!r} is not the name of a node. Expected up to 63 letters, digits and any of "
            ". _ -, as `node` in config.yaml of the agent. Fix: write node-7, say."
        )
    if not known.is_hub:
        raise Refused(
            f"role: {known.role}: only a hub receives samples from agents. Expected: role: hub. Fix: set it "
            f"in {config}, `make up`, and try again."
        )
    if revoke:
        if node not in users:
            raise Refused(
                f"NODE: {node!r} may not write. Expected one that `make agent` lists. Fix: check it."
            )
        del users[node]
        agent_users.save(known, folder, users)
        _write_error(f"Revoked: the hub refuses the password of {node} from now on.")
        return 0
    if node in users and not renew:
        raise Refused(
            f"NODE: {node} already has a password. Expected a new node. Fix: `make agent NODE={node} "
            "RENEW=1` replaces it; the old password is invalid at once."
        )
    password = secrets.token_urlsafe(32)
    agent_users.save(known, folder, {**users, node: hashed(password)})
    sys.stdout.write(f"{password}\n")
    sys.stdout.flush()
    _write_error(
        f"The line on standard output is the password of {node}; it is not shown again. Store it on the "
        "agent in a file that only its user can read, and set hub.password_file to that file."
    )
    return 0


def _write_error(line: str) -> None:
    sys.stderr.write(adapt(f"{line}\n"))


def nodes(users: Mapping[str, str], found: _Series | None) -> list[str]:
    """Return a table of the nodes that may write, empty if none may; ``found`` is what Prometheus knows."""
    written = {labels["node"]: value for labels, value in found or () if "written" in labels}
    lost = {labels["node"] for labels, _ in found or () if "alertname" in labels and "node" in labels}

    def state(node: str) -> str:
        if found is None:
            return "unknown: the hub does not answer"
        if node not in written:
            return "none within an hour"
        return f"{ago(time.time() - written[node])}{': NodeLost' if node in lost else ''}"

    return table([("node", "last write"), *((name, state(name)) for name in users)]) if users else []


def show(config: Config, folder: Path, say: Say) -> bool:
    """Report agents and their runs; return whether the certificate lets agents write."""
    found, file = _asked(config), config.agents.cert_file
    say(f"\nThis is a hub. {agent.on_hub(config)}")
    for line in nodes(agent_users.nodes(folder), found) or ["No node may write yet."]:
        say(f"  {line}")
    runs = [
        f"{value:.0f} {labels['state']} on {labels['node']}"
        for labels, value in found or ()
        if "state" in labels
    ]
    unknown = "unknown, because Prometheus does not answer"
    say(f"Runs of agents: {unknown if found is None else ', '.join(sorted(runs)) or 'none yet'}.")
    if not file:
        return True
    left = expiry(file) - time.time()
    if left > 0:
        say(f"The certificate for agents expires in {duration(left)}.")
    else:
        say(
            f"Agents cannot connect: {file} has expired or is no certificate. Fix: replace it with a new one."
        )
    return left > 0


def _asked(config: Config) -> _Series | None:
    promql = urllib.parse.quote(f"{_RUNS} or {_LOST} or {_WRITTEN}")
    answer = http_client.read(f"http://{config.address('prometheus')}/api/v1/query?query={promql}")
    if answer is None:
        return None
    result: list[Any] = json.loads(answer)["data"]["result"]
    return [(each["metric"], float(each["value"][1])) for each in result]
