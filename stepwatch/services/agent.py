"""Messages of commands on an agent: its limits, and whether the hub accepts its samples."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import Config, cluster
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.files import last_lines
from stepwatch.system.terminal import duration

_SENT = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds"
_REFUSED = "prometheus_remote_storage_samples_failed_total"
_OF_HUB = r'^{}\{{remote_name="hub",[^}}]*\}} (\S+)$'
_URL = re.compile(rf'^{_SENT}\{{remote_name="hub",url="([^"]*?)(?:/api/v1/write)?"', re.MULTILINE)
_REASON = re.compile(r'(?:non-recoverable error|Failed to send batch, retrying).* err="((?:[^"\\]|\\.)*)"')
_FIXES = {
    "401 Unauthorized": "`make agent NODE=name RENEW=1` on the hub makes a new password for the file of "
    "hub.password_file; hub.username, or node, must be the name that `make agent` lists there.",
    "HTTP request to an HTTPS server": "write https:// in hub.url.",
    "HTTP response to HTTPS client": "give the hub a certificate (agents.cert_file there), or write http:// "
    "for a tunnel.",
    "404 Not Found": "hub.url must end in the path for remote write there.",
    "too far in the future": "correct the clock of this machine, or the hub's.",
    "certificate has expired": "replace agents.cert_file on the hub, or correct the clock of this machine.",
    "certificate is valid for": "write a name of the hub's certificate in hub.url, or give the hub a "
    "certificate with this name (subjectAltName).",
    "certificate": "hub.ca_file must be the hub's certificate, or that of its authority, and hub.url have a "
    "name that the certificate has.",
    "no such host": "the name in hub.url must resolve here.",
    "connection refused": "`make status` on the hub, and the port in hub.url must be its ports.agents.",
    "i/o timeout": "the hub's firewall must let the port in hub.url through.",
    "deadline exceeded": "the hub's firewall must let the port in hub.url through.",
}
"""By what an error of the sender has in it."""
_SKEWED = 60
"""Seconds by which clocks may differ: rules see what is up to five minutes late."""
_LATE = 60
"""Seconds: four of the slower scrapes."""
_PATIENCE = 20
"""Seconds in which a sender that works has sent something."""


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


@dataclass(frozen=True)
class Sender:
    """Prometheus in agent mode: the page of its metrics, and its log."""

    metrics: str
    log: Path

    def closing(self) -> Iterator[str]:
        """Yield what `up` says of it when it has just started: whether the hub takes its samples."""
        deadline, page = time.monotonic() + _PATIENCE, None
        while time.monotonic() < deadline and not _value(_SENT, page := http_client.read(self.metrics) or ""):
            time.sleep(0.2)
        yield next(self.faults(page or ""), "The hub accepts its samples.")

    def faults(self, page: str | None) -> Iterator[str]:
        """Yield which samples the hub does not accept, and why; ``page`` are its metrics, if it answered."""
        if page is None:
            return
        off = http_client.clock_offset(match[1]) if (match := _URL.search(page)) else None
        if off is not None and abs(off) > _SKEWED:
            yield (
                f"The clock of this machine is {duration(abs(off))} {'ahead of' if off > 0 else 'behind'} "
                "the hub's: alerts about this node do not fire, and samples more than 10 minutes ahead are "
                "lost. Fix: correct the clock of this machine, or the hub's (`timedatectl`)."
            )
        sent = _value(_SENT, page)
        if not sent:
            yield f"The hub has not accepted a sample since the sender started: {self._reason()}"
        elif self._refused(page):
            yield f"The hub refuses the samples, which are lost: {self._reason()}"
        elif (late := time.time() - sent) > _LATE:
            yield (
                f"The hub has not accepted the samples of the last {duration(late)}: {self._reason()} "
                f"They are kept for {cluster.BUFFER} and sent later."
            )

    def taken(self, page: str) -> str:
        """Return the message without faults: which hub accepts the samples, and how old they are."""
        hub = match[1] if (match := _URL.search(page)) else ""
        age = duration(max(0.0, time.time() - _value(_SENT, page)))
        return f"The hub {hub} accepts its samples (newest {age} old)."

    def _refused(self, page: str) -> bool:
        """Return whether the hub refuses what is sent now, not only what was sent at some time."""
        before, deadline = _value(_REFUSED, page), time.monotonic() + _PATIENCE
        sent = now = _value(_SENT, page)
        refused = before
        # What is refused counts as sent, too.
        while before and now == sent and time.monotonic() < deadline:
            time.sleep(0.2)
            page = http_client.read(self.metrics) or page
            now, refused = _value(_SENT, page), _value(_REFUSED, page)
        return refused > before

    def _reason(self) -> str:
        found = [match[1] for line in last_lines(self.log, 200) if (match := _REASON.search(line))]
        if not found:
            return f"{self.log} says why."
        reason = found[-1].replace('\\"', '"').replace("\\n", " ").strip().rstrip(".")
        fix = next((f" Fix: {fix}" for sign, fix in _FIXES.items() if sign in reason), "")
        return f"{reason}.{fix}"


def _value(name: str, page: str) -> float:
    found = re.search(_OF_HUB.format(name), page, re.MULTILINE)
    return float(found[1]) if found else 0.0
