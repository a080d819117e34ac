"""Tells how each part of the stack is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

from stepwatch.deploy.native import part, service, supervisord
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.readiness import damaged
from stepwatch.deploy.native.state import DamagedStateError, State
from stepwatch.deploy.native.supervisord import Report
from stepwatch.services import settings
from stepwatch.services.health_report import News
from stepwatch.services.settings import Standing
from stepwatch.system import processes
from stepwatch.system.http_client import Texts, read_all
from stepwatch.system.log_tail import last_lines
from stepwatch.system.terminal import Say, duration, table

UP, DEGRADED, NOT_RUNNING = 0, 1, 3

_HEADINGS = ("part", "state", "pid", "up for", "restarts", "settings", "page", "log")
_WORDS = {"BACKOFF": "dies at start", "FATAL": "given up", "RUNNING": "not ready"}
_UNSUPERVISED = "unsupervised"
_WITHOUT_GUARDIAN = (
    "supervisord and the guardian are dead. Living parts continue, but a part that dies is not restarted. "
    "Fix: `make up`, which starts everything again."
)
_WITHOUT_SUPERVISOR = "supervisord does not answer. The guardian starts it again within 30 s."
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
    standing: Standing | None

    @property
    def well(self) -> bool:
        """Whether it works and runs the settings that were rendered."""
        return self.state == "up" and self.standing in (None, Standing.CURRENT)

    @property
    def restless(self) -> bool:
        """Whether its log is worth a look."""
        if self.state == _UNSUPERVISED:
            return False
        return self.state != "up" or self.restarted

    @property
    def restarted(self) -> bool:
        """Whether it died, and runs again for a short time at most."""
        return bool(self.ends) and self.uptime < _YOUNG


def status(place: State, say: Say) -> int:
    """Show a table of the parts, the last log lines of those in trouble, and what fires.

    Returns:
        0 all parts are up, 1 some are not, run other settings or cannot alert, 3 the stack is not running.
    """
    running = processes.marked(place.mark)
    if not running:
        say("Stepwatch is not running. `make up` starts it.")
        if service.installed(place):
            _tell_service(place, say)
        return NOT_RUNNING
    try:
        parts = part.load(place.parts)
    except DamagedStateError as damaged:
        say(f"{damaged}")
        parts = []
    if not parts:
        say(f"These processes of the stack run, but {place.folder} no longer describes them:")
        for process in running:
            say(f"  {process.pid}  {processes.command(process.pid)}")
        say("Fix: run `make down` to stop them, or `make up` to replace them.")
        return DEGRADED
    report = news(parts, place)
    own = [each.ready for each in parts if each.web] + [each.metrics for each in parts if each.settings]
    texts = read_all([*own, *report.pages])
    lines = _lines(parts, texts, place, say)
    for row in table([_HEADINGS, *(_row(line, place) for line in lines)]):
        say(row)
    _tell_trouble(lines, place, say)
    if restart := _last_restart(place):
        say(f"\n{restart}")
    _tell_service(place, say)
    sound = report.tell(texts, say)
    return UP if sound and all(line.well for line in lines) else DEGRADED


def _lines(parts: Sequence[Part], texts: Texts, place: State, say: Say) -> list[Line]:
    with supervisord.connected(place) as server:
        reports = server.reports() if server else None
    living, ends = processes.named(place.mark), supervisord.exits(place)
    if reports is None:
        say(_WITHOUT_GUARDIAN if "guardian" not in living else _WITHOUT_SUPERVISOR)
    return [
        _line(each, texts, (reports or {}).get(each.name), living.get(each.name), ends.get(each.name, []))
        for each in parts
    ]


def _line(
    wanted: Part, texts: Texts, report: Report | None, process: psutil.Process | None, ends: Sequence[str]
) -> Line:
    answers = not wanted.web or texts[wanted.ready] is not None
    standing = settings.standing(wanted.settings, texts[wanted.metrics]) if wanted.settings else None
    if report:
        pid, uptime = report.pid, time.time() - report.since if report.pid else 0
    else:  # its mark is all that is known
        pid, uptime = (process.pid, time.time() - process.create_time()) if process else (0, 0)
    return Line(wanted, _state(report, pid, answers=answers), pid, uptime, ends, standing)


def _state(report: Report | None, pid: int, *, answers: bool) -> str:
    if processes.suspended(pid):
        return "suspended"
    if report is None:
        return "gone" if not pid else _UNSUPERVISED if answers else "not ready"
    if answers and report.state in ("RUNNING", "STARTING"):
        return "up"
    return _WORDS.get(report.state, report.state.lower())


def _last_restart(place: State) -> str:
    """When and why the guardian last started everything again, in its words."""
    try:
        return place.restarted.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _row(line: Line, place: State) -> tuple[str, ...]:
    return (
        line.part.name,
        line.state,
        str(line.pid or "-"),
        duration(line.uptime) if line.pid else "-",
        str(len(line.ends)),
        line.standing.value if line.standing else "-",
        line.part.url,
        str(place.log(line.part.name)),
    )


def _tell_trouble(lines: Sequence[Line], place: State, say: Say) -> None:
    for line in lines:
        if line.restarted or (line.ends and not line.pid):
            say(f"\n{line.part.name} died: {line.ends[-1]}.")
        log = last_lines(place.log(line.part.name), 5) if line.restless else []
        if log:
            say("\n  ".join([f"\nThe log of {line.part.name} ends with:", *log]))
        if line.restless and (found := damaged(line.part.name, place)):
            say(f"\n{found.fix(str(place.data(line.part.name)))}")
        if line.state == "suspended":
            say(f"\nA signal suspended {line.part.name}. Fix: kill -CONT {line.pid}")
        if line.standing is Standing.CHANGED:
            say(f"\nThe settings of {line.part.name} were rendered again since it read them: `make up`.")
        if line.standing is Standing.REFUSED:
            say(f"\n{line.part.name} refused its settings; its log says why.")


def _tell_service(place: State, say: Say) -> None:
    say("\n" + "\n".join(service.standing(place)))


def news(parts: Sequence[Part], place: State) -> News:
    """Who can be asked for news among the parts."""
    by_name = {part.name: part for part in parts}
    addresses = {name: part.address for name, part in by_name.items()}
    return News(
        exporter=addresses.get("exporter", ""),
        alertmanager=addresses.get("alertmanager", ""),
        watchdog=addresses.get("watchdog", ""),
        shows=by_name["exporter"].shows if "exporter" in by_name else "",
        log=str(place.log("exporter")),
    )
