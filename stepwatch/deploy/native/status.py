"""The state of each part of the stack."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepwatch.deploy.native import service, stack, supervisord
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import DamagedStateError, State
from stepwatch.deploy.native.supervisord import Report
from stepwatch.services import settings
from stepwatch.services.agent import Sender
from stepwatch.services.health_report import HealthReport
from stepwatch.services.settings import SettingsState
from stepwatch.system import processes
from stepwatch.system.files import last_lines
from stepwatch.system.http_client import Texts, read_all
from stepwatch.system.terminal import Say, duration, table

UP, DEGRADED, NOT_RUNNING = 0, 1, 3

_HEADINGS = ("part", "state", "pid", "up for", "restarts", "settings", "page", "log")
_WORDS = {"BACKOFF": "dies at start", "FATAL": "given up", "RUNNING": "not ready"}
_UNSUPERVISED = "unsupervised"
_DIED = (
    "Stepwatch is not running, although no `make down` stopped it: supervisord died, and its parts with it, "
    "or the machine restarted. Fix: `make up`; with SERVICE=1, systemd restarts it."
)
_HUNG = (
    "supervisord (pid {pid}) does not answer: a part that dies is not restarted, and one that logs much "
    "waits for it. Fix: `make up`, which restarts everything if that lasts another 20 s."
)
_YOUNG = 60
"""Seconds: what runs for less, and had to be started again, is shown with its last log lines."""


@dataclass(frozen=True)
class Line:
    """What `status` shows of one part; ``ends`` is how and when it died since supervisord started."""

    part: Part
    state: str
    pid: int
    uptime: float
    ends: Sequence[str]
    settings: SettingsState | None

    @property
    def well(self) -> bool:
        """Whether it works and runs the settings that were rendered."""
        return self.state == "up" and self.settings in (None, SettingsState.CURRENT)

    def row(self, place: State) -> tuple[str, ...]:
        """Its cells, in the order of the headings."""
        return (
            self.part.name,
            self.state,
            str(self.pid or "-"),
            duration(self.uptime) if self.pid else "-",
            str(len(self.ends)),
            self.settings.value if self.settings else "-",
            self.part.url,
            str(place.log(self.part.name)),
        )

    def remarks(self, place: State) -> Iterator[str]:
        """What is wrong with it, and the fix."""
        name = self.part.name
        restarted = bool(self.ends) and self.uptime < _YOUNG
        if restarted or (self.ends and not self.pid):
            yield f"\n{name} died: {self.ends[-1]}."
        troubled = self.state not in (_UNSUPERVISED, "up") or restarted
        if troubled and (log := last_lines(place.log(name), 5)):
            yield "\n  ".join([f"\nThe log of {name} ends with:", *log])
        if self.state == "suspended":
            yield f"\nA signal suspended {name}. Fix: kill -CONT {self.pid}"
        if self.settings is SettingsState.CHANGED:
            yield f"\n{name} runs with outdated settings. Fix: `make up`."
        if self.settings is SettingsState.REFUSED:
            yield f"\n{name} refused its settings; its log says why."


def status(place: State, say: Say) -> int:
    """Show a table of the parts, the last log lines of those in trouble, and what fires.

    Returns:
        0 all parts are up, 1 some are not, run other settings or cannot alert, 3 the stack is not running.
    """
    pid = supervisord.living(place)
    if not pid:
        say(_DIED if place.wanted else "Stepwatch is not running. `make up` starts it.")
        if service.installed(place):
            say("\n" + "\n".join(service.report(place)))
        return NOT_RUNNING
    with supervisord.connected(place) as server:
        reports = server.reports() if server else None
    if reports is None:
        say(_HUNG.format(pid=pid))
    try:
        parts = stack.load(place.parts)
    except DamagedStateError as damage:
        say(str(damage))
        parts = []
    if parts:
        return _show(parts, reports, place, say)
    say(f"These processes of the stack run, but {place.folder} no longer describes them:")
    for each in (reports or {}).values():
        say(f"  {each.pid}  {each.name}  {each.state.lower()}")
    say("Fix: run `make up` to describe them again, or `make down` to stop them.")
    return DEGRADED


def _show(parts: Sequence[Part], reports: dict[str, Report] | None, place: State, say: Say) -> int:
    report = health(parts, place)
    own = [each.ready for each in parts if each.web] + [each.metrics for each in parts if each.settings]
    texts = read_all([*own, *report.pages])
    lines = list(_lines(parts, reports, texts, place))
    for row in table([_HEADINGS, *(line.row(place) for line in lines)]):
        say(row)
    for line in lines:
        for remark in line.remarks(place):
            say(remark)
    say("\n" + "\n".join(service.report(place)))
    if text := settings.rules_elsewhere(place.rendered):
        say(text)
    sound = report.show(texts, say)
    sound &= _all_sent(parts, texts, place, say)
    return UP if sound and all(line.well for line in lines) else DEGRADED


def _all_sent(parts: Sequence[Part], texts: Texts, place: State, say: Say) -> bool:
    """Report whether the hub accepts the samples; returns whether it accepts all."""
    sound = True
    for sender in senders(parts, place):
        page = texts[sender.metrics]
        faults = list(sender.faults(page))
        for line in faults or ([sender.taken(page)] if page else []):
            say(f"\n{line}")
        sound &= not faults
    return sound


def senders(parts: Sequence[Part], place: State) -> list[Sender]:
    """Return the sender to the hub: one on an agent, else none."""
    return [Sender(part.metrics, place.log(part.name)) for part in parts if part.name == stack.SENDER]


def health(parts: Sequence[Part], place: State) -> HealthReport:
    """The report on runs and alerts, asked of these parts."""
    by_name = {part.name: part for part in parts}
    asked = ("exporter", "alertmanager", "watchdog")
    return HealthReport(
        **{name: by_name[name].address if name in by_name else "" for name in asked},
        shows=by_name["exporter"].shows if "exporter" in by_name else "",
        log=str(place.log("exporter")),
    )


def _lines(
    parts: Sequence[Part], reports: dict[str, Report] | None, texts: Texts, place: State
) -> Iterator[Line]:
    ends = supervisord.exits(place)
    for part in parts:
        answers = not part.web or texts[part.ready] is not None
        report = (reports or {}).get(part.name) or Report(part.name, "gone", 0, 0)
        if reports is None:
            state = _UNSUPERVISED if answers else "not ready"
        elif processes.suspended(report.pid):
            state = "suspended"
        elif answers and report.state in ("RUNNING", "STARTING"):
            state = "up"
        else:
            state = _WORDS.get(report.state, report.state.lower())
        yield Line(
            part,
            state,
            report.pid,
            time.time() - report.since if report.pid else 0,
            ends.get(part.name, []),
            settings.state_of(part.settings, texts[part.metrics]) if part.settings else None,
        )
