"""The state of each part of the stack."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stepwatch.deploy.native import service, stack, supervisord
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import DamagedStateError, State
from stepwatch.services import lifecycle, settings
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
_WITHOUT_GUARDIAN = (
    "supervisord and the guardian are dead. Running parts continue, but a part that dies is not restarted. "
    "Fix: `make up`, which restarts everything."
)
_WITHOUT_SUPERVISOR = "supervisord does not answer. The guardian restarts it within 30 s."
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
        if self.state != _UNSUPERVISED and (self.state != "up" or restarted):
            if log := last_lines(place.log(name), 5):
                yield "\n  ".join([f"\nThe log of {name} ends with:", *log])
            if found := place.damage(name):
                yield f"\n{found.fix(str(place.data(name)))}"
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
    running = processes.marked(place.mark)
    if not running:
        say("Stepwatch is not running. `make up` starts it.")
        if service.installed(place):
            say("\n" + "\n".join(service.report(place)))
        return NOT_RUNNING
    try:
        parts = stack.load(place.parts)
    except DamagedStateError as damage:
        say(str(damage))
        parts = []
    if not parts:
        say(f"These processes of the stack run, but {place.folder} no longer describes them:")
        for process in running:
            say(f"  {process.pid}  {processes.command(process.pid)}")
        say("Fix: run `make down` to stop them, or `make up` to replace them.")
        return DEGRADED
    report = health(parts, place)
    own = [each.ready for each in parts if each.web] + [each.metrics for each in parts if each.settings]
    texts = read_all([*own, *report.pages])
    lines = list(_lines(parts, texts, place, say))
    for row in table([_HEADINGS, *(line.row(place) for line in lines)]):
        say(row)
    for line in lines:
        for remark in line.remarks(place):
            say(remark)
    with suppress(OSError):  # the file exists only after the guardian restarted all parts
        say(f"\n{place.restarted.read_text(encoding='utf-8', errors='replace').strip()}")
    say("\n" + "\n".join(service.report(place)))
    if text := _notes(parts, place):
        say(text)
    sound = report.show(texts, say)
    sound &= _all_sent(parts, texts, place, say)
    return UP if sound and all(line.well for line in lines) else DEGRADED


def _notes(parts: Sequence[Part], place: State) -> str:
    """What people need to sign in, and where rules are evaluated if not here."""
    agent = all(each.name != "alertmanager" for each in parts)
    return "" if agent else lifecycle.logins(str(place.password)) + settings.rules_elsewhere(place.rendered)


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


def _lines(parts: Sequence[Part], texts: Texts, place: State, say: Say) -> Iterator[Line]:
    with supervisord.connected(place) as server:
        reports = server.reports() if server else None
    living, ends = processes.named(place.mark), supervisord.exits(place)
    if reports is None:
        say(_WITHOUT_GUARDIAN if "guardian" not in living else _WITHOUT_SUPERVISOR)
    for part in parts:
        answers = not part.web or texts[part.ready] is not None
        report = (reports or {}).get(part.name)
        pid, since = 0, 0.0
        if report:
            pid, since = report.pid, report.since
        elif process := living.get(part.name):  # its mark is all that is known
            pid, since = process.pid, process.create_time()
        if processes.suspended(pid):
            state = "suspended"
        elif report is None and not pid:
            state = "gone"
        elif report is None:
            state = _UNSUPERVISED if answers else "not ready"
        elif answers and report.state in ("RUNNING", "STARTING"):
            state = "up"
        else:
            state = _WORDS.get(report.state, report.state.lower())
        yield Line(
            part,
            state,
            pid,
            time.time() - since if pid else 0,
            ends.get(part.name, []),
            settings.state_of(part.settings, texts[part.metrics]) if part.settings else None,
        )
