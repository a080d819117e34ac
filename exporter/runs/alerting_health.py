"""Faults that keep Prometheus from alerting, found by the run exporter and posted to Alertmanager.

Prometheus watches the run exporter (ExporterDown), and this thread of it watches Prometheus. On a full disk
most of Prometheus' own metrics still look healthy: it is ready, its targets are up, its rules have just been
evaluated. Two counters show the fault: appended samples stop rising, and failed writes to its log rise.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from exporter.engine_client import Client
from exporter.http.exposition import Metric, Sample, own
from exporter.http.message import Answer, Request
from exporter.http_client import NoAnswerError
from exporter.installation import adapt
from exporter.runs.files.mounts import HungError, Mount
from exporter.translatable import Text

logger = logging.getLogger(__name__)

ALERT = "AlertingBroken"
PROMETHEUS, ALERTMANAGER = "prometheus", "alertmanager"

CHECK_SECONDS = 10.0
"""Between two checks. Including confirmation, a fault is reported within a minute."""
HOLD_SECONDS = 60.0
"""How long an alert continues after its fault. Until then it inhibits the alerts that the fault caused, such
as ExporterDown; Prometheus needs some of that time to resolve them."""
EXPIRY_SECONDS = 120.0
"""After which Alertmanager resolves an alert that is not posted again: the run exporter may die."""
DOWN_SECONDS = 30.0
"""A restart takes a few seconds, and so does a new file on a busy disk."""
START_SECONDS = 120.0
"""Prometheus reads its log again before it is ready; that of months takes minutes."""
STILL_SECONDS = 30.0
"""The least time without progress that counts."""
DROPPED_SECONDS = 90.0
"""Prometheus sends a firing alert again every 45 s."""
SETTLE_SECONDS = 60.0
"""Sooner after it loaded its settings Prometheus may know no Alertmanager yet; and what it drops sooner after
Alertmanager came back, it began to send before. It sends both again."""
RESERVE, RESERVE_FILES = 16 << 20, 100
"""Free bytes and inodes that count as none: Prometheus writes its blocks in files of some MiB."""

DEFAULTS: Mapping[str, Any] = {
    "enabled": True,
    "severity": "critical",
    "labels": {},
    "annotations": {},
    "generator": "",
    "texts": {},
    "scrape_interval": 5.0,
    "rules_interval": 5.0,
}
"""The settings: whether to post the alert, and with what; ``texts`` are translations, intervals seconds."""

_STATUS = adapt("`make status`")
_STORES_NOTHING = Text("Prometheus stores no samples")


class Finding(NamedTuple):
    """A fault of a mount point, ``prometheus`` or ``alertmanager``; first and last seen in Unix seconds."""

    fault: str
    name: str
    summary: Text
    description: Text
    since: float = 0.0
    seen: float = 0.0


class AlertingHealth:
    """Checks the stack again and again in a thread of its own; ``settings`` as generate.py writes them."""

    def __init__(
        self,
        prometheus: Client,
        alertmanager: Client,
        folders: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = {**DEFAULTS, **(settings or {})}
        scrapes, rules = self._settings["scrape_interval"], self._settings["rules_interval"]
        self._prometheus, self._alertmanager = Prometheus(prometheus, scrapes, rules), alertmanager
        self._disks = Disks(folders)
        self._known: dict[tuple[str, str], Finding] = {}
        self._present: tuple[Finding, ...] = ()
        self._silent = Timer()
        self._answers_since = 0.0  # Unix seconds; 0 while Alertmanager does not answer
        self._refusal = ""
        self._checked = 0.0  # Unix seconds; 0 before the first check

    def start(self) -> None:
        """Start the checks."""
        Thread(target=self._run, name="alerting health", daemon=True).start()

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, a text for each fault, the oldest first."""
        return tuple(f"{each.summary}. {each.description}" for each in self._present)

    def answer(self, _: Request) -> Answer:
        """Return the findings as JSON."""
        document = {"checked": self._checked, "findings": [each._asdict() for each in self._present]}
        return Answer("200 OK", "application/json", json.dumps(document).encode() + b"\n")

    def samples(self) -> Iterator[Metric]:
        """Yield the findings and the room of each file system, as metrics."""
        found: list[Sample] = [({"fault": each.fault, "name": each.name}, 1) for each in self._present]
        yield own("alerting_finding", "What keeps the stack from alerting.", found)
        yield own("alerting_last_check_timestamp_seconds", "When the last check ended.", self._checked)
        yield from self._disks.samples()

    def _run(self) -> None:
        while True:
            try:
                self.check()
            except Exception:  # an unforeseen one must not end the checks
                logger.exception("A check of the stack failed. The next one is in %.0f s.", CHECK_SECONDS)
            time.sleep(CHECK_SECONDS)

    def check(self) -> None:
        """Check everything once, and post what is wrong."""
        found = [*self._disks.check(), *self._check_alertmanager()]
        # Without its disk, Prometheus stores nothing or is down, as its counters say for another check after
        # that: one fault, not two.
        diskless = any(each.fault.startswith("disk_") for each in (*found, *self._present))
        found += [
            each
            for each in self._prometheus.check(self._answers_since)
            if not diskless or each.fault == "notifications_dropped"
        ]
        now, before = time.time(), {each[:2] for each in self._present}
        for finding in found:
            if finding[:2] not in before:
                logger.error("%s: %s", finding.summary, finding.description)
            since = self._known.get(finding[:2], finding._replace(since=now)).since
            self._known[finding[:2]] = finding._replace(since=since, seen=now)
        for key in before - {each[:2] for each in found}:
            logger.info("resolved: %s: %s", self._known[key].summary, key[1])
        present = (each for each in self._known.values() if each.seen == now)
        self._present, self._checked = tuple(sorted(present, key=lambda each: each.since)), now
        if self._post(now):  # so that Alertmanager knows the end of those that are over
            known = self._known.items()
            self._known = {key: each for key, each in known if now - each.seen < HOLD_SECONDS}

    def _check_alertmanager(self) -> Iterator[Finding]:
        problem = ""
        try:
            started = _sum(_metrics(self._alertmanager), "process_start_time_seconds") or 0.0
            self._answers_since = max(self._answers_since or time.time(), started)
        except NoAnswerError as fault:
            problem, self._answers_since = fault.args[0], 0.0
        if self._silent.lasts(problem) >= DOWN_SECONDS:
            text = Text(
                "{problem}, for {seconds} s or more: no notification is sent. First: run {status}, then"
                " read Alertmanager's log.",
                problem=problem,
                seconds=f"{DOWN_SECONDS:.0f}",
                status=_STATUS,
            )
            yield Finding("alertmanager_down", ALERTMANAGER, Text("Alertmanager does not answer"), text)
        elif self._refusal:
            text = Text("{refusal}. First: read Alertmanager's log.", refusal=self._refusal)
            summary = Text("Alertmanager refuses the run exporter's alerts")
            yield Finding("alertmanager_refuses", ALERTMANAGER, summary, text)

    def _post(self, now: float) -> bool:
        """Post what is wrong or has just ended; return whether Alertmanager knows it now."""
        known = (each for each in self._known.values() if each.name != ALERTMANAGER)
        alerts = [self._alert(each, now) for each in known] if self._settings["enabled"] else []
        if not alerts:
            return True
        try:
            reply = self._alertmanager.post("/api/v2/alerts", alerts)
        except NoAnswerError:
            return False
        self._refusal = "" if reply.status == 200 else f"{reply.status} {reply.text.strip()[:200]}"
        return reply.status == 200

    def _alert(self, finding: Finding, now: float) -> dict[str, Any]:
        settings, texts = self._settings, self._settings["texts"]
        end = now if now - finding.seen >= HOLD_SECONDS else now + EXPIRY_SECONDS
        return {
            "labels": {
                **settings["labels"],
                "severity": settings["severity"],
                "topic": "stack",
                "alertname": ALERT,
                "fault": finding.fault,
                "name": finding.name,
            },
            "annotations": {
                "summary": finding.summary.translated(texts),
                "description": finding.description.translated(texts),
                **settings["annotations"],
            },
            "startsAt": datetime.fromtimestamp(finding.since, timezone.utc).isoformat(),
            "endsAt": datetime.fromtimestamp(end, timezone.utc).isoformat(),
            "generatorURL": settings["generator"],
        }


class Prometheus:
    """Whether Prometheus stores, evaluates and notifies; seconds between two scrapes and two evaluations."""

    def __init__(self, client: Client, scrapes: float, rules: float) -> None:
        self._client = client
        self._down, self._starting = Timer(), Timer()
        self._stored = Counter("prometheus_tsdb_head_samples_appended_total", scrapes)
        self._evaluated = Counter("prometheus_rule_evaluations_total", rules)
        self._failed_writes = Counter("prometheus_tsdb_wal_writes_failed_total")
        self._dropped = Counter("prometheus_notifications_dropped_total")
        self._dropped_until = 0.0

    def check(self, alertmanager_answers_since: float) -> Iterator[Finding]:
        """Yield its faults; the Unix time is 0 while Alertmanager does not answer."""
        page, problem, starting = "", "", False
        try:
            page = _metrics(self._client)
            starting = self._client.get("/-/ready").status == 503
        except NoAnswerError as fault:
            problem = fault.args[0]
        healthy = not (problem or starting)
        down, waiting = self._down.lasts(problem), self._starting.lasts(starting)
        for counter in (self._stored, self._evaluated, self._failed_writes, self._dropped):
            counter.update(page if healthy else None)
        if down >= DOWN_SECONDS:
            text = Text("{problem}, for {seconds} s", problem=problem, seconds=f"{down:.0f}")
            yield _broken("prometheus_down", Text("Prometheus does not answer"), text)
        elif waiting >= START_SECONDS:
            text = Text(
                "It has been starting for {seconds} s: it replays its write-ahead log",
                seconds=f"{waiting:.0f}",
            )
            yield _broken("prometheus_starting", Text("Prometheus is still starting"), text)
        elif healthy:
            yield from self._judged(page, alertmanager_answers_since)

    def _judged(self, page: str, alertmanager_answers_since: float) -> Iterator[Finding]:
        if still := self._stored.still:
            text = Text("No sample was stored for {seconds} s", seconds=f"{still:.0f}")
            yield _broken("prometheus_not_storing", _STORES_NOTHING, text)
        elif self._failed_writes.rises >= 2:
            text = Text("Writes to its write-ahead log fail")
            yield _broken("prometheus_not_storing", _STORES_NOTHING, text)
        if seconds := self._evaluated.still:
            text = Text("No rule was evaluated for {seconds} s", seconds=f"{seconds:.0f}")
            yield _broken("prometheus_not_judging", Text("Prometheus evaluates no rules"), text)
        loaded = _sum(page, "prometheus_config_last_reload_success_timestamp_seconds") or 0.0
        settled = max(loaded, alertmanager_answers_since or math.inf) + SETTLE_SECONDS
        if self._dropped.rises and time.time() > settled:
            self._dropped_until = time.monotonic() + DROPPED_SECONDS
        if time.monotonic() < self._dropped_until:
            text = Text(
                "Prometheus drops alerts, although Alertmanager answers the run exporter: no alert about a"
                " run arrives. First: read Prometheus' log; check the network between the two."
            )
            summary = Text("Prometheus cannot reach Alertmanager")
            yield Finding("notifications_dropped", PROMETHEUS, summary, text)


class Space(NamedTuple):
    """A file system and its room in bytes and inodes; ``files`` is 0 if they have no limit."""

    mountpoint: str
    device: str
    fstype: str
    size: int
    free: int
    files: int
    files_free: int


class Disks:
    """The file systems of some folders, each asked in a thread of its own: one that hangs blocks no other."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._threads = {folder: Mount(folder) for folder in folders}
        self._spaces: dict[str, Space] = {}

    def check(self) -> list[Finding]:
        """Return the fault of each file system that has one."""
        found: dict[str, Finding] = {}
        for folder, thread in self._threads.items():
            try:
                space = self._spaces[folder] = thread.call(partial(space_of, folder))
            except OSError as problem:
                if not isinstance(problem, HungError) or thread.silent >= DOWN_SECONDS:
                    place = self._spaces[folder].mountpoint if folder in self._spaces else folder
                    first = Text("check `dmesg` and the file server")
                    summary = Text("State disk does not answer")
                    found[place] = _disk("disk_hung", place, summary, str(problem.strerror), first)
                continue
            text, first = None, Text("free space there; no restart is needed")
            if space.files and space.files_free < RESERVE_FILES:
                text = Text("{free} inodes free of {all}", free=space.files_free, all=space.files)
                first = Text("check `df -i` and folders with many small files")
            elif space.free < RESERVE:
                free, whole = f"{space.free / 2**20:.1f} MiB", f"{space.size / 2**30:.1f} GiB"
                text = Text("{free} free of {all}", free=free, all=whole)
            if text:
                place = space.mountpoint
                found[place] = _disk("disk_full", place, Text("State disk is full"), text, first)
        return list(found.values())

    def samples(self) -> Iterator[Metric]:
        """Yield the room of each file system, as metrics."""
        spaces = {space.mountpoint: space for space in list(self._spaces.values())}
        for name, field, text in (
            ("size_bytes", "size", "Size of a file system that holds state."),
            ("free_bytes", "free", "Free bytes that a part may use."),
            ("files", "files", "Inodes of the file system; 0 if it has no limit."),
            ("files_free", "files_free", "Free inodes of the file system."),
        ):
            values: list[Sample] = [
                ({label: getattr(space, label) for label in Space._fields[:3]}, getattr(space, field))
                for space in spaces.values()
            ]
            yield own(f"state_filesystem_{name}", text, values)


def space_of(path: str) -> Space:
    """Return the room of the file system of a folder, or of the first one above that exists."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    room, real, mounts = os.statvfs(there), there.resolve(), {}
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")[4], *after.split(" ")[1::-1]
        point, device, fstype = (
            re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), each) for each in fields
        )
        mounts[point] = point, device, fstype  # of several at one place, the last is seen
    mount = next(mounts[str(each)] for each in (real, *real.parents) if str(each) in mounts)
    return Space(
        *mount, room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize, room.f_files, room.f_favail
    )


class Timer:
    """Measures for how long something holds, in seconds of the steady clock."""

    _since: float | None = None

    def lasts(self, holds: object) -> float:
        """Return for how long it has held without a break; 0 if it does not hold."""
        now = time.monotonic()
        self._since = (now if self._since is None else self._since) if holds else None
        return 0.0 if self._since is None else now - self._since


class Counter:
    """A counter of Prometheus: checks in a row in which it rises, seconds for which it is ``still``."""

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
    return Finding(fault, PROMETHEUS, summary, description)


def _disk(fault: str, place: str, summary: Text, text: str, first: Text) -> Finding:
    description = Text(
        "{place}: {text}. Prometheus stores no samples, so no run is monitored; Alertmanager loses silences"
        " if it restarts. First: {first}.",
        place=place,
        text=text,
        first=first,
    )
    return Finding(fault, place, summary, description)


def _metrics(client: Client) -> str:
    reply = client.get("/metrics")
    if reply.status != 200:
        raise NoAnswerError("answer", Text("/metrics answers {status}", status=reply.status))
    return reply.text


def _sum(page: str, metric: str) -> float | None:
    """Return the sum of a metric's samples; ``None`` if the page has none."""
    values = re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    return sum(map(float, values)) if values else None
