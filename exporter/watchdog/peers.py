"""Stacks on other machines: whether their Prometheus and Alertmanager work and are reachable.

A peer is healthy while its Alertmanager has the Watchdog alert and its Prometheus keeps sending it. Only
changes in the peer's responses count, so the clocks of the two machines may differ.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from threading import Thread
from typing import Any, NamedTuple

from exporter.http.exposition import Metric, own
from exporter.installation import adapt
from exporter.watchdog.client import Client, UnreachableError
from exporter.watchdog.finding import PEER_DOWN, Finding, Text

logger = logging.getLogger("exporter.watchdog")

LOOK_SECONDS = 10.0
QUESTION = "/api/v2/alerts?filter=alertname%3D%22Watchdog%22"
SUMMARY = Text("Alerting of another machine is down")

_STATUS = adapt("`make status`")
_GATEWAY = (500, 502, 503, 504)


class _Fault(Exception):  # noqa: N818  the peer's, not ours
    """Raised if a response does not show that the peer is healthy; the text is the reason."""

    def __init__(self, text: Text) -> None:
        super().__init__(text)
        self.text = text


class Heartbeat(NamedTuple):
    """A peer's Watchdog alert: when it was last sent, and for how many seconds that is valid."""

    sent: tuple[str, ...]
    counts: float


class Peer:
    """Another machine's stack, checked repeatedly.

    Args:
        name: What alerts call it: their label ``peer``.
        client: Asks its Alertmanager, by the address at which other machines reach that.
        patience: Seconds of silence after which it is down.
    """

    def __init__(self, name: str, client: Client, patience: float) -> None:
        self.name = name
        self.problem: Text | None = Text("not checked yet")
        """The finding of the last check; ``None`` if the peer is healthy."""
        self.down = False
        """Whether it has been silent for too long."""
        self.silence = 0.0
        """Seconds since it was last known to be healthy; since the first check if it never was."""
        self._client, self._patience = client, patience
        self._sent: tuple[str, ...] = ()
        self._well: float | None = None

    def start(self, interval: float = LOOK_SECONDS) -> None:
        """Check the peer periodically, in the background: a peer that hangs delays nothing else."""

        def run() -> None:
            while True:
                self.look()
                time.sleep(interval)

        Thread(target=run, name=f"peer {self.name}", daemon=True).start()

    def look(self) -> None:
        """Ask it once."""
        if self._well is None:
            self._well = time.monotonic()
        patience = self._patience
        try:
            heartbeat = _heartbeat(self._client)
        except UnreachableError as problem:
            self.problem = Text("no response ({reason})", reason=problem.args[0])
        except _Fault as fault:
            self.problem = fault.text
        except Exception:  # an unforeseen one must not keep it from being judged
            logger.exception("A look at the peer %s failed.", self.name)
            self.problem = Text("the check failed; see the watchdog's log on this machine")
        else:
            # Prometheus lets an alert count for four times as long as it takes to send it again.
            patience = max(patience, heartbeat.counts / 2)
            if heartbeat.sent != self._sent:
                self._sent, self._well, self.problem = heartbeat.sent, time.monotonic(), None
            elif time.monotonic() - self._well >= patience:
                self.problem = Text("its Alertmanager answers, but its Prometheus no longer sends alerts")
        # Judged here, right after an answer: a watchdog that was stopped itself for long knows nothing yet.
        self.silence = time.monotonic() - self._well
        self.down = self.problem is not None and self.silence >= patience

    def findings(self) -> Iterator[Finding]:
        """Yield the finding that it is down, if it is."""
        problem = self.problem
        if not self.down or problem is None:
            return
        if not self._sent:
            problem = Text("not healthy since the watchdog started: {problem}", problem=problem)
        description = Text(
            "{peer} ({address}): {problem}; for {seconds} s. Its runs may not be monitored. First: run"
            " {status} there; if all is healthy, check the network between the two machines.",
            peer=self.name,
            address=self._client.address,
            problem=problem,
            seconds=f"{self.silence:.0f}",
            status=_STATUS,
        )
        yield Finding(PEER_DOWN, self.name, SUMMARY, description)

    def report(self) -> dict[str, Any]:
        """Return its state, for JSON."""
        return {
            "peer": self.name,
            "url": self._client.address,
            "down": self.down,
            "problem": self.problem,
            "silence_seconds": round(self.silence, 1),
        }


def peers(settings: Sequence[Mapping[str, Any]], patience: float) -> list[Peer]:
    """Return the peers that settings name by ``name`` and ``url``, and perhaps a login."""
    return [
        Peer(
            each["name"],
            Client(
                each["url"].rstrip("/"),
                each.get("password_file"),
                user=each.get("username") or "",
                ca_file=each.get("ca_file"),
            ),
            patience,
        )
        for each in settings
    ]


def samples(every: Sequence[Peer]) -> list[Metric]:
    """Return the metrics about peers."""
    return [
        own(
            "watchdog_peer_down",
            "1 if a peer has been silent for too long.",
            [({"peer": each.name}, float(each.down)) for each in every],
        ),
        own(
            "watchdog_peer_silence_seconds",
            "Seconds since a peer was last known to be well.",
            [({"peer": each.name}, each.silence) for each in every],
        ),
    ]


def _heartbeat(client: Client) -> Heartbeat:
    reply = client.get(QUESTION)
    if reply.status != 200:
        raise _Fault(_refusal(reply.status))
    try:
        found = [(each["updatedAt"], each["endsAt"]) for each in _alerts(reply.body)]
        counts = [_seconds(end) - _seconds(sent) for sent, end in found]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _Fault(Text("not an Alertmanager: the response is not a list of alerts")) from None
    if not found:
        raise _Fault(
            Text("its Alertmanager has no Watchdog alert: its Prometheus is down or cannot reach it")
        )
    return Heartbeat(tuple(sorted(sent for sent, _ in found)), min(counts))


def _alerts(body: str) -> list[dict[str, Any]]:
    found = json.loads(body)
    if isinstance(found, list):
        return found
    raise TypeError


def _refusal(status: int) -> Text:
    if status == 401:
        return Text("status 401: it requires a login; set username and password_file of this peer")
    if status == 403:
        return Text(
            "status 403: it refuses this host name; set links.alertmanager there, or use its IP address"
        )
    if 300 <= status < 400:
        return Text("status {status}, a redirect: set the address that it redirects to", status=status)
    if status in _GATEWAY:
        return Text("status {status}: the Alertmanager behind that address is down", status=status)
    return Text("status {status}: not an Alertmanager", status=status)


def _seconds(time_: str) -> float:
    # Python 3.10 reads neither Z nor more than six digits.
    whole, _, rest = time_.partition(".")
    zone = rest.lstrip("0123456789") if rest else ""
    return datetime.fromisoformat((whole + zone).replace("Z", "+00:00")).timestamp()
