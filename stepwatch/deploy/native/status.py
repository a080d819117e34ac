"""The state of each part of the stack."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stepwatch.deploy.native import service, stack, supervisord
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import DamagedStateError, State
from stepwatch.deploy.native.supervisord import Report
from stepwatch.services import lifecycle, settings
from stepwatch.services.health_report import HealthReport
from stepwatch.services.settings import SettingsState
from stepwatch.system import processes
from stepwatch.system.files import last_lines
from stepwatch.system.http_client import read_all
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


def status(place: State, say: Say) -> int:
    """Show a table of the parts, the last log lines of those in trouble, and what fires."""
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
    report, ends = health(parts, place), supervisord.exits(place)
    own = [each.ready for each in parts if each.web] + [each.metrics for each in parts if each.settings]
    texts = read_all([*own, *report.pages])
    rows, remarks, well = [_HEADINGS], list[str](), True
    for part in parts:
        answers = not part.web or texts[part.ready] is not None
        if reports is None:
            known = Report(part.name, _UNSUPERVISED if answers else "not ready", 0, 0)
        else:
            known = reports.get(part.name) or Report(part.name, "gone", 0, 0)
        loaded = settings.state_of(part.settings, texts[part.metrics]) if part.settings else None
        state, age, died = _state(known, answers=answers), time.time() - known.since, ends.get(part.name, [])
        pid, up = (str(known.pid), duration(age)) if known.pid else ("-", "-")
        log = place.log(part.name)
        current = loaded.value if loaded else "-"
        rows.append((part.name, state, pid, up, str(len(died)), current, part.url, str(log)))
        if died and (age < _YOUNG or not known.pid):
            remarks.append(f"\n{part.name} died: {died[-1]}.")
        troubled = state not in (_UNSUPERVISED, "up") or (died and age < _YOUNG)
        if troubled and (lines := last_lines(log, 5)):
            remarks.append("\n  ".join([f"\nThe log of {part.name} ends with:", *lines]))
        if state == "suspended":
            remarks.append(f"\nA signal suspended {part.name}. Fix: kill -CONT {pid}")
        remarks += settings.remarks(part.name, loaded, "its log")
        well &= state == "up" and loaded in (None, SettingsState.CURRENT)
    for line in (*table(rows), *remarks, "\n" + "\n".join(service.report(place))):
        say(line)
    if any(each.name == "alertmanager" for each in parts):
        say(lifecycle.logins(str(place.password)) + settings.rules_elsewhere(place.rendered))
    sound = report.show(texts, say)
    return UP if sound and well else DEGRADED


def _state(known: Report, *, answers: bool) -> str:
    """The word for how a part is, of which supervisord reports this."""
    if processes.suspended(known.pid):
        return "suspended"
    if answers and known.state in ("RUNNING", "STARTING"):
        return "up"
    return _WORDS.get(known.state, known.state.lower())


def health(parts: Sequence[Part], place: State) -> HealthReport:
    """The report on runs and alerts, asked of these parts."""
    by_name = {part.name: part for part in parts}
    asked = ("exporter", "alertmanager")
    return HealthReport(
        **{name: by_name[name].address if name in by_name else "" for name in asked},
        shows=by_name["exporter"].shows if "exporter" in by_name else "",
        log=str(place.log("exporter")),
    )
