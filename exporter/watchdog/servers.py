"""Whether Prometheus stores, evaluates and notifies, and whether Alertmanager answers; here and on peers.

On a full disk, most of Prometheus' own metrics still look healthy: it is ready, its targets are up, its
rules have just been evaluated. Two counters show the fault: appended samples stop rising, and failed writes
to its log rise.

Of a peer, a stack on another machine, only the network is seen. It is healthy while its Alertmanager has
the Watchdog alert and its Prometheus keeps sending it. Only changes in the peer's responses count, so the
clocks of the two machines may differ.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Thread
from typing import Any, NamedTuple

from exporter.http.exposition import Metric, own
from exporter.installation import adapt
from exporter.watchdog.client import Client, UnreachableError, timestamp
from exporter.watchdog.finding import ALERTMANAGER, PEER_DOWN, Finding, Text, Timer

DOWN_SECONDS = 30.0
"""A restart takes a few seconds."""
START_SECONDS = 120.0
"""Prometheus reads its log again before it is ready; that of months takes minutes."""
STILL_SECONDS = 30.0
"""The least time without progress that counts."""
DROPPED_SECONDS = 90.0
"""Prometheus sends a firing alert again every 45 s."""
SEND_SECONDS = 10.0
"""Prometheus gives up a request to Alertmanager after that long, and only then counts what it dropped."""
SETTLE_SECONDS = 60.0
"""Prometheus knows no Alertmanager for some seconds after it loaded its settings; it sends again later."""

WAITING = ("BACKOFF", "FATAL", "EXITED")
"""States of a part that should run and does not."""

PROMETHEUS = "prometheus"

_STATUS = adapt("`make status`")


class Supervisor:
    """The supervisord of a native stack, by the path of its socket; ``None`` where there is none.

    It waits a second longer before each try to start a part, and gives up after the hundredth. A full disk
    ends some versions of Prometheus (2.42 by SIGBUS), and none starts on it. So parts that died on a full
    disk are started as soon as there is room again.
    """

    def __init__(self, path: str | None) -> None:
        self._client = Client(path) if path else None

    def start(self, part: str) -> bool:
        """Start a part now that waits for its next try or was given up. Return whether it started."""
        try:
            report = self._call("getProcessInfo", part)
            if not any(f">{state}<" in report for state in WAITING):
                return False
            # Without this, one that waits for its next try counts as started.
            self._call("stopProcess", part)
            return "<fault>" not in self._call("startProcess", part, "<boolean>0</boolean>")
        except UnreachableError:
            return False

    def _call(self, method: str, part: str, *more: str) -> str:
        """Call a method by XML-RPC; ``part`` is the name of a part, which needs no escape."""
        if self._client is None:
            return ""
        values = (f"<string>{part}</string>", *more)
        params = "".join(f"<param><value>{value}</value></param>" for value in values)
        name = f"<methodName>supervisor.{method}</methodName>"
        call = f"<methodCall>{name}<params>{params}</params></methodCall>"
        return re.sub(r"\s+", "", self._client.post("/RPC2", "text/xml", call).body)


class Alertmanager:
    """Takes alerts, unless it is down.

    ``answers_since`` is the time (Unix seconds) since which its present process has answered each look; 0
    while it does not answer.
    """

    def __init__(self, client: Client) -> None:
        self.answers_since = 0.0
        self._client = client
        self._down = Timer()
        self._refusal = ""

    def look(self) -> Iterator[Finding]:
        """Yield its faults."""
        problem = ""
        try:
            started = _sum(_metrics(self._client), "process_start_time_seconds") or 0.0
            self.answers_since = max(self.answers_since or time.time(), started)
        except UnreachableError as fault:
            problem, self.answers_since = fault.args[0], 0.0
        if self._down.lasts(problem) >= DOWN_SECONDS:
            text = Text(
                "{problem}, for {seconds} s or more: no notification is sent. First: run {status}, then"
                " read Alertmanager's log.",
                problem=problem,
                seconds=f"{DOWN_SECONDS:.0f}",
                status=_STATUS,
            )
            yield _finding("alertmanager_down", ALERTMANAGER, Text("Alertmanager does not answer"), text)
        elif self._refusal:
            text = Text("{refusal}. First: read Alertmanager's log.", refusal=self._refusal)
            summary = Text("Alertmanager refuses the watchdog's alerts")
            yield _finding("alertmanager_refuses", ALERTMANAGER, summary, text)

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        """Send it alerts. Return whether it accepted them."""
        try:
            reply = self._client.post("/api/v2/alerts", "application/json", json.dumps(alerts))
        except UnreachableError:
            return False
        self._refusal = "" if reply.status == 200 else f"{reply.status} {reply.body.strip()[:200]}"
        return reply.status == 200


class Prometheus:
    """Stores and evaluates, unless something is wrong.

    Args:
        client: Asks it.
        scrapes: Seconds between two scrapes of the target that it scrapes most often.
        rules: Seconds between two evaluations of the group that it evaluates most often.
    """

    def __init__(self, client: Client, scrapes: float, rules: float) -> None:
        self._client = client
        self._down, self._starting = Timer(), Timer()
        self._stored = Counter("prometheus_tsdb_head_samples_appended_total", scrapes)
        self._evaluated = Counter("prometheus_rule_evaluations_total", rules)
        self._failed_writes = Counter("prometheus_tsdb_wal_writes_failed_total")
        self._dropped = Counter("prometheus_notifications_dropped_total")
        self._asked = 0.0
        self._dropped_until = 0.0

    def look(self, alertmanager_answers_since: float) -> Iterator[Finding]:
        """Yield its faults; the Unix time is 0 while Alertmanager does not answer."""
        page, problem, starting = "", "", False
        try:
            page = _metrics(self._client)
            starting = self._client.get("/-/ready").status == 503
        except UnreachableError as fault:
            problem = fault.args[0]
        down, waiting = self._down.lasts(problem), self._starting.lasts(starting)
        if down >= DOWN_SECONDS:
            text = Text("{problem}, for {seconds} s", problem=problem, seconds=f"{down:.0f}")
            yield _broken("prometheus_down", Text("Prometheus does not answer"), text)
        elif waiting >= START_SECONDS:
            text = Text(
                "It has been starting for {seconds} s: it replays its write-ahead log",
                seconds=f"{waiting:.0f}",
            )
            yield _broken("prometheus_starting", Text("Prometheus is still starting"), text)
        for counter in (self._stored, self._evaluated, self._failed_writes, self._dropped):
            counter.update(page if not (problem or starting) else None)
        if not problem and not starting:
            yield from self._judged(page, alertmanager_answers_since)

    def _judged(self, page: str, alertmanager_answers_since: float) -> Iterator[Finding]:
        before, self._asked = self._asked, time.time()
        still = self._stored.still
        if still or self._failed_writes.rises >= 2:
            text = (
                Text("No sample was stored for {seconds} s", seconds=f"{still:.0f}")
                if still
                else Text("Writes to its write-ahead log fail")
            )
            yield _broken("prometheus_not_storing", Text("Prometheus stores no samples"), text)
        if seconds := self._evaluated.still:
            text = Text("No rule was evaluated for {seconds} s", seconds=f"{seconds:.0f}")
            yield _broken("prometheus_not_judging", Text("Prometheus evaluates no rules"), text)
        loaded = _sum(page, "prometheus_config_last_reload_success_timestamp_seconds") or 0.0
        # Alerts whose sending began while Alertmanager was down do not show that the connection is broken.
        reachable = 0 < alertmanager_answers_since < before - SEND_SECONDS
        if self._dropped.rises and reachable and self._asked - loaded > SETTLE_SECONDS:
            self._dropped_until = time.monotonic() + DROPPED_SECONDS
        if time.monotonic() < self._dropped_until:
            text = Text(
                "Prometheus drops alerts, although Alertmanager answers the watchdog: no alert about a run"
                " arrives. First: read Prometheus' log; check the network between the two."
            )
            summary = Text("Prometheus cannot reach Alertmanager")
            yield _finding("notifications_dropped", PROMETHEUS, summary, text)


class Counter:
    """A counter of Prometheus.

    ``rises`` is in how many looks in a row it has risen; ``still`` is for how many seconds it has stood
    still, 0 until that is three times the ``interval`` (seconds) in which it should rise.
    """

    def __init__(self, metric: str, interval: float = 0.0) -> None:
        self.rises = 0
        self.still = 0.0
        self._metric, self._patience = metric, max(STILL_SECONDS, 3 * interval)
        self._last: float | None = None
        self._since = 0.0

    def update(self, page: str | None) -> None:
        """Read its value from a page of metrics; without a page, start over."""
        value = None if page is None else _sum(page, self._metric)
        now = time.monotonic()
        risen = value is not None and self._last is not None and value > self._last
        self.rises = self.rises + 1 if risen else 0
        if value is None or value != self._last:
            self._last, self._since = value, now
        seconds = now - self._since
        self.still = seconds if seconds >= self._patience else 0.0


def _broken(fault: str, summary: Text, text: Text) -> Finding:
    description = Text(
        "{text}: no run is monitored. First: run {status}, then read Prometheus' log.",
        text=text,
        status=_STATUS,
    )
    return _finding(fault, PROMETHEUS, summary, description)


def _finding(fault: str, part: str, summary: Text, description: Text) -> Finding:
    return Finding(fault, part, summary, description, (part,))


def _metrics(client: Client) -> str:
    reply = client.get("/metrics")
    if reply.status != 200:
        raise UnreachableError(Text("/metrics answers {status}", status=reply.status))
    return reply.body


def _sum(page: str, metric: str) -> float | None:
    """Return the sum of a metric's samples; ``None`` if the page has none."""
    values = re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    return sum(map(float, values)) if values else None


logger = logging.getLogger("exporter.watchdog")

PEER_SECONDS = 10.0
"""Between two looks at a peer."""
_HEARTBEAT_PATH = "/api/v2/alerts?filter=alertname%3D%22Watchdog%22"
_PEER_SUMMARY = Text("Alerting of another machine is down")

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

    def start(self, interval: float = PEER_SECONDS) -> None:
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
        yield Finding(PEER_DOWN, self.name, _PEER_SUMMARY, description)

    def report(self) -> dict[str, Any]:
        """Return its state, for JSON."""
        return {
            "peer": self.name,
            "url": self._client.address,
            "down": self.down,
            "problem": self.problem,
            "silence_seconds": round(self.silence, 1),
        }


def configured_peers(settings: Sequence[Mapping[str, Any]], patience: float) -> list[Peer]:
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


def peer_metrics(every: Sequence[Peer]) -> list[Metric]:
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
    reply = client.get(_HEARTBEAT_PATH)
    if reply.status != 200:
        raise _Fault(_refusal(reply.status))
    try:
        found = [(each["updatedAt"], each["endsAt"]) for each in _alerts(reply.body)]
        counts = [timestamp(end) - timestamp(sent) for sent, end in found]
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
