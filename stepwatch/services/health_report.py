"""The report of `status`: what is read, receivers, and firing alerts, from the parts themselves."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from exporter.runs.signals import missing
from stepwatch.system import http_client
from stepwatch.system.http_client import Texts, metric
from stepwatch.system.terminal import Say, ago, duration

ALERTS, SILENCES = "/api/v2/alerts?active=true", "/api/v2/silences"
_FINDINGS = "/api/v1/findings"
_PATHS = {
    "exporter": ("/metrics", _FINDINGS),
    "alertmanager": ("/api/v2/receivers", ALERTS, SILENCES, "/metrics", "/"),
}

_RANKS = {"critical": 0, "warning": 1, "info": 2}

# Of what config.yaml names; pages that are registered come and go.
_DOWN = r'^stepwatch_target_up\{name="([^"]+)",source="(?:mlflow|prometheus_page)"\} 0\.0$'
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_STATE = rf'^rl_run_state\{{(?=[^}}]*run={_TEXT})(?=[^}}]*state="(\w+)")[^}}]*\}} 1\.0$'
_MISSING = rf'^{missing.METRIC}\{{run={_TEXT},signal="(\w+)",reason="(\w+)",setting={_TEXT}'
_HUNG = r'^stepwatch_mount_hung_since_timestamp_seconds\{mount="([^"]+)"\} (\S+)$'

_LEFT_OUT = {
    'stepwatch_files{kind="left_out"}': (
        "files are not read: the exporter reads the newest 5000 without a record. "
        "Fix: name the folder or glob that holds the logs only."
    ),
    'stepwatch_left_out_runs{state="running"}': (
        "live runs are not watched: the exporter watches 400. "
        "Fix: start another Stepwatch for some of the folders."
    ),
    'stepwatch_left_out_runs{state="ended"}': (
        "ended runs are not shown: the exporter shows 400 runs, live ones first."
    ),
}
"""By metric, what follows its value."""

_REFILL = 60
"""Seconds after which an Alertmanager that starts again has all alerts."""
_FIRST_LOOK = 3
"""Seconds that an exporter which has just started gets to look at its files."""
_NEXT_CHECK = 20
"""Seconds that the exporter, which checks the stack every ten, gets to check it again."""
_NONE = '{"checked": 0, "taken": 0, "hub": "", "faults": ["The exporter does not answer."]}'
_CHECKS = "stepwatch_alerting_last_check_timestamp_seconds"
"""Which an exporter has that checks the stack."""
_SENT = "stepwatch_hub_last_write_timestamp_seconds"
"""Which that of an agent has, in its place: it sends to a hub."""


@dataclass(frozen=True)
class HealthReport:
    """A report on runs and alerts; the parts are host:port, empty if there is no such part."""

    exporter: str
    alertmanager: str
    shows: str
    log: str

    @property
    def pages(self) -> list[str]:
        """What ``show`` needs to have read."""
        asked = [part for part in _PATHS if getattr(self, part)]
        return [self._url(part, path) for part in asked for path in _PATHS[part]]

    def show(self, texts: Texts, say: Say) -> bool:
        """Report by ``texts``, read of ``pages``; return whether the exporter found no fault of the stack."""
        page = None
        if self.exporter:
            page = texts[self._url("exporter", "/metrics")]
            states = re.findall(r'^stepwatch_runs\{state="(\w+)"\} ([1-9]\d*)\.0$', page or "", re.MULTILINE)
            runs = ", ".join(f"{count} {state}" for state, count in states) or "none yet"
            if page is None:
                runs = "unknown, because the exporter does not answer"
            say(f"\n{self.shows[:1].upper()}{self.shows[1:]}: {runs}.")
            for line in self._unread(page or ""):
                say(line)
        if self.alertmanager:
            self._show_alerts(texts, say)
        if page is None:
            return not self.exporter
        answer = texts[self._url("exporter", _FINDINGS)]
        if _SENT in page:
            return _show_hub(answer, say)
        return _CHECKS not in page or _show_findings(answer, say)

    def show_after_start(self, say: Say) -> None:
        """Report on a stack that just started, after the exporter's next check: not by older findings."""
        begun, deadline = time.time(), time.monotonic() + _FIRST_LOOK
        while True:
            page = http_client.read(self._url("exporter", "/metrics"), timeout=1) or ""
            if metric(page, "stepwatch_last_poll_timestamp_seconds") or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        for line in self._unreadable(page):
            say(line)
        if self.alertmanager:
            _show_lacking_page(http_client.read(self._url("alertmanager", "/")), say)
        findings, deadline = self._url("exporter", _FINDINGS), time.monotonic() + _NEXT_CHECK
        if _SENT in page:
            _show_hub(_sent_after(begun, findings, deadline), say)
        if _CHECKS not in page:
            return
        if waits := _stale(answer := http_client.read(findings), begun):
            say("\nThe exporter found a fault before the parts were ready. It checks again within 10 s.")
        while _stale(answer, begun) and time.monotonic() < deadline:
            time.sleep(0.2)
            answer = http_client.read(findings)
        if _show_findings(answer, say) and waits:
            say("The fault is over.")

    def _url(self, part: str, path: str) -> str:
        return f"http://{getattr(self, part)}{path}"

    def _unread(self, page: str) -> Iterator[str]:
        """What the exporter does not read or judge, by its metrics page."""
        for mount, since in re.findall(_HUNG, page, re.MULTILINE):
            yield (
                f"{mount} has not answered for {duration(time.time() - float(since))}: the runs below it are "
                "not watched until it does. Fix: repair the file server, or unmount the folder."
            )
        for name, text in _LEFT_OUT.items():
            if count := metric(page, name):
                yield f"{count:.0f} {text}"
        yield from self._unreadable(page)
        for name in re.findall(_DOWN, page, re.MULTILINE):
            yield f"{name} returned no readable answer; {self.log} says why."
        for run, signal, reason, setting in re.findall(_MISSING, page, re.MULTILINE):
            lost = f"no longer logs {signal}, which it had in every step"
            lacks = lost if reason == "lost" else f"has no known key of {signal}"
            line = f", such as {_unescaped(setting)}" if setting else ""
            yield (
                f"{_unescaped(run)} {lacks}. Fix: map its key below signals: in "
                f"config.yaml{line}; `make inspect RUNS=log` lists them."
            )

    def _unreadable(self, page: str) -> Iterator[str]:
        if count := metric(page, 'stepwatch_files{kind="unreadable"}'):
            yield (
                f"The exporter has no permission to read {count:.0f} files or folders (counted as "
                f"unreadable). {self.log} names them, with the fix for each: `chmod g+r` or `o+r` for a "
                "file, `chmod g+rx` or `o+rx` for a folder. They are then read within seconds, without `make "
                "up`."
            )

    def _show_alerts(self, texts: Texts, say: Say) -> None:
        pages = {path: texts[self._url("alertmanager", path)] for path in _PATHS["alertmanager"]}
        runs = texts[self._url("exporter", "/metrics")] if self.exporter else None
        states = re.findall(_STATE, runs or "", re.MULTILINE)
        over = {_unescaped(run): state for run, state in states if state != "running"}
        say(f"Receivers: {_receivers(pages['/api/v2/receivers'])}.")
        _show_lacking_page(pages["/"], say)
        if pages[ALERTS] is None:
            say(
                "Firing: unknown, because Alertmanager does not answer. Prometheus and the light page show "
                "it."
            )
        started = metric(pages["/metrics"] or "", "process_start_time_seconds") or 0
        if (age := time.time() - started) < _REFILL:
            say(
                f"Alertmanager started {ago(age)}. Prometheus resends all alerts within a minute: until "
                "then, some firing alerts are missing here."
            )
        if alerts := firing(pages[ALERTS], pages[SILENCES], over):
            say("\n  ".join(["\nFiring:", *alerts]))


def firing(alerts: str | None, silences: str | None, over: Mapping[str, str] | None = None) -> list[str]:
    """A text for each alert on these two pages, the worst first, each followed by those it mutes."""
    found = [alert for alert in json.loads(alerts or "[]") if alert["labels"]["alertname"] != "Watchdog"]
    ends = {silence["id"]: _time(silence["endsAt"]) for silence in json.loads(silences or "[]")}
    names = {alert["fingerprint"]: alert["labels"]["alertname"] for alert in found}

    def order(alert: dict[str, Any]) -> tuple[bool, int, str]:
        rank = _RANKS.get(alert["labels"].get("severity", "info"), len(_RANKS))
        return bool(alert["status"]["inhibitedBy"]), rank, alert["startsAt"]

    found.sort(key=order)
    place = {alert["fingerprint"]: index for index, alert in enumerate(found)}

    def position(alert: dict[str, Any]) -> tuple[int, bool]:
        causes = alert["status"]["inhibitedBy"]
        return place.get(causes[0], len(found)) if causes else place[alert["fingerprint"]], bool(causes)

    texts = []
    for alert in sorted(found, key=position):
        labels, notes = alert["labels"], alert["annotations"]
        fired = f"fired at {_time(alert['startsAt']):%H:%M}"
        run, name = labels.get("run", ""), labels["alertname"]
        ended = (over or {}).get(run, "") if not name.startswith("Run") else ""
        end = f"the run has ended ({ended})" if ended else ""
        words = (labels.get("severity", ""), name, run, fired, end)
        muted = _muted(alert["status"], names, ends)
        action = f"\n    First: {notes['action']}." if "action" in notes and not ended else ""
        texts.append(f"{'  '.join(filter(None, words))}{muted}: {notes.get('description', '')}{action}")
    return texts


def _muted(status: dict[str, Any], names: Mapping[str, str], ends: Mapping[str, datetime]) -> str:
    """Why an alert sends no notification, and until when; empty if it does."""
    if not status["silencedBy"]:
        causes = sorted({names.get(each, "another alert") for each in status["inhibitedBy"]})
        return f" (muted by {', '.join(causes)})" if causes else ""
    end = max((ends[each] for each in status["silencedBy"] if each in ends), default=None)
    if end is None:
        return " (silenced)"
    today = end.date() == datetime.now().astimezone().date()
    return f" (silenced until {end:%H:%M})" if today else f" (silenced until {end:%H:%M, %d %b})"


def _time(text: str) -> datetime:
    """A time of Alertmanager's API, in this machine's zone."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()


def _unescaped(label: str) -> str:
    """The value of a label on a metrics page."""
    return re.sub(r"\\(.)", lambda sign: {"n": "\n"}.get(sign[1], sign[1]), label)


def _receivers(page: str | None) -> str:
    if page is None:
        return "unknown, because Alertmanager does not answer"
    # Those in brackets are made by us, for no one and for tests.
    names = [receiver["name"] for receiver in json.loads(page) if not receiver["name"].startswith("(")]
    return ", ".join(names) or "none, so alerts are sent to no one"


def _show_lacking_page(page: str | None, say: Say) -> None:
    if http_client.lacks_web_page(page):
        say(
            "This Alertmanager was built without its web page, like Debian's package: links to silences in "
            "messages and on dashboards do not work. Use `make silence RUN=name` instead. "
            "Fix: put the official release of Alertmanager on PATH."
        )


def _show_findings(page: str | None, say: Say) -> bool:
    """Show what keeps the stack from alerting; return whether the exporter answered and found nothing."""
    if page is None:
        say("\nThe exporter does not answer: faults of the alerting stack are unknown.")
        return False
    found = json.loads(page)
    if faults := [f"{each['summary']}. {each['description']}" for each in found["findings"]]:
        checked = ago(time.time() - found["checked"])
        say("\n  ".join([f"\nAlerting is broken (checked {checked}):", *faults]))
    return not faults


def _sent_after(begun: float, findings: str, deadline: float) -> str | None:
    """The page of findings once the hub has answered after this Unix time, or at the deadline."""
    while True:
        answer = http_client.read(findings)
        if json.loads(answer or _NONE)["checked"] > begun or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def _show_hub(page: str | None, say: Say) -> bool:
    """Show whether the hub takes what this agent sends; return whether nothing keeps it from that."""
    found = json.loads(page or _NONE)
    taken = "nothing was sent yet"
    if found["taken"]:
        taken = f"last {ago(time.time() - found['taken'])}"
    for line in found["faults"] or [f"The hub {found['hub']} accepts its samples ({taken})."]:
        say(f"\n{line}")
    return not found["faults"]


def _stale(findings: str | None, begun: float) -> bool:
    """Whether a page of findings has some that were found before this Unix time."""
    known = json.loads(findings or "{}")
    return bool(known.get("findings")) and known["checked"] < begun


def known_runs(exporter: str) -> dict[str, set[str]] | None:
    """The runs that an exporter (host:port) shows, with the nodes that read each; ``None`` if it hangs."""
    answer = http_client.read(f"http://{exporter}/api/v1/runs")
    if answer is None:
        return None
    found: dict[str, set[str]] = {}
    for run in json.loads(answer)["runs"]:
        found.setdefault(run["run"], set()).update(run["nodes"])
    return found


def raw_keys(page: str) -> set[str]:
    """The keys without a signal that an exporter shows, from its metrics page."""
    found = re.findall(r'^rl_raw\{run="(?:[^"\\]|\\.)*",key="((?:[^"\\]|\\.)*)"', page, re.MULTILINE)
    return set(map(_unescaped, found))


def read_runs(page: str) -> list[str]:
    """The names of all runs that an exporter reads, from its metrics page."""
    return list(map(_unescaped, re.findall(r'^rl_run_info\{run="((?:[^"\\]|\\.)*)"', page, re.MULTILINE)))
