"""Waits until the parts answer, and tells how it goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwatch import damage, pages, startup
from stepwatch.damage import Damage
from stepwatch.native import processes, supervisord
from stepwatch.native.log import last_lines
from stepwatch.native.part import Part
from stepwatch.native.state import State
from stepwatch.native.supervisord import Report
from stepwatch.startup import Look, Startup
from stepwatch.tables import Say

_REPLAY_LINES = 50


def ready(part: Part, report: Report | None) -> bool:
    """Whether a part answers on its ready page; one without pages, whether it runs."""
    if part.web:
        return pages.read(part.web.page(part.web.ready)) is not None
    return report is not None and report.state == "RUNNING"


def damaged(name: str, place: State) -> Damage | None:
    """The damaged file that keeps a part from starting, if it is one."""
    return damage.find(name, last_lines(place.log(name), damage.LOG_LINES), place.data(name))


def until_ready(parts: Sequence[Part], place: State, say: Say) -> set[str]:
    """Wait until all parts answer or are given up; say why of those that are, and return their names."""
    by_name = {part.name: part for part in parts}

    def looks(names: Iterable[str]) -> dict[str, Look]:
        with supervisord.connected(place) as server:
            reports = server.reports() if server else {}
        ends = supervisord.exits(place)
        alive = place.parts.exists() and processes.marked(place.mark)
        return {
            name: Look(
                ready=ready(by_name[name], reports.get(name)),
                ends=len(ends.get(name, [])),
                busy=startup.replay(last_lines(place.log(name), _REPLAY_LINES)),
                gone=not alive,
            )
            for name in names
        }

    ended = {name: len(reasons) for name, reasons in supervisord.exits(place).items()}
    failed = Startup(looks, say, ended).wait(by_name)
    if failed and not place.parts.exists():
        say("`make down` took the stack down meanwhile.")
        return set(failed)
    for name, reason in failed.items():
        ends = supervisord.exits(place).get(name, [])
        whole = f"{reason} (last: {ends[-1]})" if ends else reason
        log = place.log(name)
        found = damaged(name, place)
        fix = found.fix(str(place.data(name))) if found else ""
        for line in startup.failure(name, whole, str(log), last_lines(log, 5), fix):
            say(line)
    return set(failed)
