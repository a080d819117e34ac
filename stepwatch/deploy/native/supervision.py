"""Starts and updates the supervised parts, and waits until they answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepwatch.deploy.native import service, stack, supervisord
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import StackError, State
from stepwatch.services import damage, startup
from stepwatch.services.damage import Damage
from stepwatch.services.settings import Settings, loaded, wait_loaded
from stepwatch.services.startup import Look
from stepwatch.system import http_client, processes
from stepwatch.system.files import last_lines
from stepwatch.system.terminal import Say

_RELOAD_SECONDS = 15
_REPLAY_LINES = 50


def start(parts: Sequence[Part], place: State, say: Say, *, as_service: bool = False) -> set[str]:
    """Start what does not run and restart what changed; return those names. The caller holds the lock.

    ``as_service``: whether systemd starts the stack from now on.

    Raises:
        StackError: a port is in use, systemd does not answer, or supervisord does not start; nothing was
            touched.
    """
    require_ports(parts, place)
    if as_service:
        service.install(place, say)
    supervisord.configure(place, parts)
    stack.save(parts, place.parts)
    with supervisord.connected(place) as server:
        if server and as_service and not service.runs(place):
            say("Stepwatch moves below systemd: all parts restart.")
            server.shut_down(place.mark)
        elif server:
            fresh = server.apply() | server.restart_down()
            say(f"Stepwatch is running; restarted: {', '.join(sorted(fresh)) or 'nothing'}.")
            return fresh
    processes.stop(place.mark, grace=10)  # orphans of a supervisord that was killed
    if service.installed(place):
        service.start(place)
    else:
        supervisord.start(place)
    return {part.name for part in parts}


def settle(parts: Sequence[Part], fresh: set[str], place: State, say: Say, *, repair: bool = False) -> int:
    """Wait until the parts are ready; reload the settings of those that were not restarted.

    `make down` may end this, so the lock must not be held. With ``repair``, damaged files that keep a part
    from starting are moved aside. The output ends with the failed parts and the reasons.

    Returns:
        0 when every part is ready and runs with the current settings, 1 when some are not.
    """
    failed = wait_ready(parts, place, say)
    if repair:
        failed = _repair(parts, failed, place, say)
    if not place.parts.exists():
        say("`make down` took the stack down meanwhile.")
        return 1
    refused = [
        part.name
        for part in parts
        if part.settings and part.name not in fresh | failed.keys()
        if not _reload(part, part.settings, place, say)
    ]
    explain(failed, place, say)
    if failed or refused:
        say(startup.verdict([*failed, *refused], len(parts)))
    return 1 if failed or refused else 0


def require_ports(parts: Iterable[Part], place: State) -> None:
    """Check that no other process uses a port of the stack.

    Raises:
        StackError: names each such port and its owner.
    """

    def ours(owner: processes.Owner | None) -> bool:
        return owner is not None and processes.belongs(owner.pid, place.mark)

    webs = [part.web for part in parts if part.web]
    problems = [
        processes.port_conflict(key, web.listen, port, ours)
        for web in webs
        for key, port in web.ports.items()
    ]
    if found := list(filter(None, problems)):
        raise StackError("\n".join(found))


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

        def ready(name: str) -> bool:
            if by_name[name].web:
                return http_client.read(by_name[name].ready) is not None
            return name in reports and reports[name].state == "RUNNING"

        return {
            name: Look(
                ready=ready(name),
                ends=len(ends.get(name, [])),
                busy=startup.replay(last_lines(place.log(name), _REPLAY_LINES)),
                gone=not alive,
            )
            for name in names
        }

    ended = {name: len(each) for name, each in supervisord.exits(place).items()}
    return startup.wait(by_name, looks, say, ended)


def explain(failed: Mapping[str, str], place: State, say: Say) -> None:
    """Print for each part that was given up the reason, the end of its log, and the fix."""
    for name, reason in failed.items():
        ends = supervisord.exits(place).get(name, [])
        whole = f"{reason} (last: {ends[-1]})" if ends else reason
        log = place.log(name)
        found = damaged(name, place)
        fix = found.fix(str(place.data(name))) if found else ""
        for line in startup.failure(name, whole, str(log), last_lines(log, 5), fix):
            say(line)


def _repair(parts: Sequence[Part], failed: dict[str, str], place: State, say: Say) -> dict[str, str]:
    """Move damaged files aside until none keeps a part from starting; return what still fails, and why."""
    moved = False
    while found := list(filter(None, (damaged(name, place) for name in sorted(failed)))):
        explain({each.part: failed[each.part] for each in found}, place, say)
        with place.lock("`make up`", say), supervisord.connected(place) as server:
            if server is None:
                return failed
            for each in found:
                server.stop(each.part)
                data = place.data(each.part)
                try:
                    aside = damage.move_aside(each, data)
                except OSError as problem:
                    raise StackError(
                        f"{data / each.name}: cannot be moved to {data / damage.ASIDE}: {problem.strerror}. "
                        "Fix: check permissions and space, or move it by hand, then run `make up`."
                    ) from None
                say(f"Moved {data / each.name} to {aside}. Nothing was deleted.")
                moved = True
            server.restart_down()
        failed = wait_ready([part for part in parts if part.name in failed], place, say)
    if not moved:
        say(damage.NOTHING)
    return failed


def _reload(part: Part, settings: Settings, place: State, say: Say) -> bool:
    """Reload the settings of a part; return whether it accepted them."""
    if settings.itself:  # SIGHUP would end it
        due = settings.changed()
    else:
        before = loaded(settings, http_client.read(part.metrics))
        due = before.at if before else 0
        with supervisord.connected(place) as server:
            if server:
                server.send_hup(part.name)
    done = wait_loaded(settings, part.metrics, after=due, patience=_RELOAD_SECONDS)
    refusal = f"refused its settings: see {place.log(part.name)}"
    say(f"  {part.name} {'runs with the current settings' if done else refusal}")
    return done
