"""A hub's agents: who may write (``python -m stepwatch agent``), and what `status` shows of them."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from exporter.door.agent_access import NODE_NAME, Credentials, new_token
from exporter.installation import adapt
from stepwatch.config import Config, load
from stepwatch.schema.errors import Refused
from stepwatch.services import agent
from stepwatch.system import http_client
from stepwatch.system.http_client import metric
from stepwatch.system.terminal import Say, ago, duration, table

_WRITTEN = re.compile(r'^stepwatch_agent_last_write_timestamp_seconds\{node="([^"]+)"\} (\S+)$', re.MULTILINE)
_REFUSED = re.compile(
    r'^stepwatch_agent_refused_total\{node="([^"]*)",reason="(\w+)"\} ([1-9]\S*)$', re.MULTILINE
)
_TAKES = "stepwatch_agent_refused_total{"
"""Every door has it on its page, and no other server."""
_RUNS = 'count by (node, state) (max by (cluster, run, node, state) (rl_run_state{node!=""}) == 1)'
_LOST = 'group by (alertname, node) (ALERTS{alertname="NodeLost",alertstate="firing"})'


def credential(config: Path, folder: Path, node: str | None, *, renew: bool, revoke: bool) -> int:
    """Make, renew, revoke or list credentials of nodes; only the token goes to stdout. Raises ``Refused``."""
    if node is None:
        if renew or revoke:
            raise Refused("NODE: missing. Expected the name of a node. Fix: `make agent NODE=node-7 ...`.")
        for line in nodes(folder, page(load(config))) or [
            f"No node may write: {folder} has no tokens. `make agent NODE=node-7` makes one."
        ]:
            _write_error(line)
        return 0
    if not NODE_NAME.fullmatch(node):
        raise Refused(
            f"NODE: {node[:100]!r} is not the name of a node. Expected up to 63 letters, digits and any of "
            ". _ -, as `node` in config.yaml of the agent. Fix: write node-7, say."
        )
    known = load(config)
    if not known.is_hub:
        raise Refused(
            f"role: {known.role}: only a hub receives samples from agents. Expected: role: hub. Fix: set it "
            f"in {config}, `make up`, and try again."
        )
    file = folder / node
    if revoke:
        return _revoke(file)
    if file.exists() and not renew:
        raise Refused(
            f"{file}: this node already has a token. Expected a new node. Fix: `make agent NODE={node} "
            "RENEW=1` replaces it; the old token is invalid at once."
        )
    token, digest = new_token()
    try:
        _write(file, f"{digest}\n")
    except OSError as problem:
        raise _not_writable(file, problem) from None
    sys.stdout.write(f"{token}\n")
    sys.stdout.flush()
    _write_error(
        f"The line on standard output is the token of {node}; it is not shown again. Store it on the agent "
        "in a file that only its user can read, and set hub.token_file to that file."
    )
    return 0


def _revoke(file: Path) -> int:
    try:
        file.unlink()
    except FileNotFoundError:
        raise Refused(
            f"{file}: no such node. Expected one that `make agent` lists. Fix: check the name."
        ) from None
    except OSError as problem:
        raise _not_writable(file, problem) from None
    _write_error(f"Revoked: the hub refuses the token of {file.name} from now on.")
    return 0


def _write(file: Path, text: str) -> None:
    """Replace the file in one step, readable by the group of the folder of secrets, as containers need it."""
    parent = file.parent.parent
    parent.mkdir(mode=0o750, exist_ok=True)
    group = parent.stat().st_gid
    if not file.parent.exists():
        file.parent.mkdir()
        _give(file.parent, group)
        file.parent.chmod(0o750)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        _give(fresh, group)
        fresh.chmod(0o640)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def _give(path: Path, group: int) -> None:
    with suppress(OSError):  # not a group of this user: a folder of secrets that containers do not read
        os.chown(path, -1, group)


def _not_writable(file: Path, problem: OSError) -> Refused:
    return Refused(
        f"{file}: {problem.strerror}. Expected a folder that you may write to. Fix: work as its owner."
    )


def _write_error(line: str) -> None:
    sys.stderr.write(adapt(f"{line}\n"))


def page(config: Config) -> str | None:
    """Return the metrics page of the door, ``None`` if it does not answer."""
    return http_client.read(f"http://{config.address('door')}/metrics")


def nodes(credentials: Path, page: str | None, lost: frozenset[str] = frozenset()) -> list[str]:
    """Return a table of the nodes that have a credential, empty if none has."""
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
    expiry = metric(door, "stepwatch_agent_certificate_expiry_timestamp_seconds")
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
