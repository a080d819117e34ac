"""Waits until the parts answer, and explains why one does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepwatch.deploy.native import supervisord
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.state import State
from stepwatch.deploy.native.supervisord import Report
from stepwatch.services import damage, startup
from stepwatch.services.damage import Damage
from stepwatch.services.startup import Look, Startup
from stepwatch.system import http_client, processes
from stepwatch.system.log_tail import last_lines
from stepwatch.system.terminal import Say

_REPLAY_LINES = 50


def damaged(name: str, place: State) -> Damage | None:
    """The damaged file that keeps a part from starting, if it is one."""
    return damage.find(name, last_lines(place.log(name), damage.LOG_LINES), place.data(name))


def wait_ready(parts: Sequence[Part], place: State, say: Say) -> dict[str, str]:
    """Wait until all parts answer or are given up; return why, by name, for those that are given up."""
    by_name = {part.name: part for part in parts}

    def looks(names: Iterable[str]) -> dict[str, Look]:
        with supervisord.connected(place) as server:
            reports = server.reports() if server else {}
        ends = supervisord.exits(place)
        alive = place.parts.exists() and processes.marked(place.mark)
        return {
            name: Look(
                ready=_ready(by_name[name], reports.get(name)),
                ends=len(ends.get(name, [])),
                busy=startup.replay(last_lines(place.log(name), _REPLAY_LINES)),
                gone=not alive,
            )
            for name in names
        }

    ended = {name: len(each) for name, each in supervisord.exits(place).items()}
    return Startup(looks, say, ended).wait(by_name)


def explain(failed: Mapping[str, str], place: State, say: Say) -> None:
    """Say of each part that was given up why, how its log ends, and what to do."""
    for name, reason in failed.items():
        ends = supervisord.exits(place).get(name, [])
        whole = f"{reason} (last: {ends[-1]})" if ends else reason
        log = place.log(name)
        found = damaged(name, place)
        fix = found.fix(str(place.data(name))) if found else ""
        for line in startup.failure(name, whole, str(log), last_lines(log, 5), fix):
            say(line)


def _ready(part: Part, report: Report | None) -> bool:
    """Whether a part answers on its ready page; one without pages, whether it runs."""
    if part.web:
        return http_client.read(part.ready) is not None
    return report is not None and report.state == "RUNNING"
