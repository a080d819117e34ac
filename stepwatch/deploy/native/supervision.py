"""Has parts supervised: starts them, or brings running ones up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from stepwatch.deploy.native import part, service, supervisord
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.readiness import damaged, explain, wait_ready
from stepwatch.deploy.native.state import StackError, State
from stepwatch.services import damage, startup
from stepwatch.services.settings import Settings, loaded, wait_loaded
from stepwatch.system import http_client, ports, processes
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.terminal import Say

_RELOAD_SECONDS = 15


def start(parts: Sequence[Part], place: State, say: Say, *, as_service: bool = False) -> set[str]:
    """Start what does not run and restart what changed; return those names. The caller holds the lock.

    Args:
        parts: What is to run; the guardian is added.
        place: Where the stack keeps what it writes.
        say: Gets each line of progress.
        as_service: Whether systemd is to start the stack from now on.

    Raises:
        StackError: a port is in use, systemd does not answer, or supervisord does not start; nothing was
            touched.
    """
    parts = [*parts, _guardian(place)]
    require_ports(parts, place)
    if as_service:
        service.install(place, say)
    supervisord.configure(place, parts)
    part.save(parts, place.parts)
    return _supervise(parts, place, say, as_service=as_service)


def settle(parts: Sequence[Part], fresh: set[str], place: State, say: Say, *, repair: bool = False) -> int:
    """Wait until the parts are ready; have those that were not started anew read their settings again.

    `make down` may end this, so the lock must not be held. With ``repair``, damaged files that keep a part
    from starting are moved aside. What is said ends with why parts failed, and which.

    Returns:
        0 when every part is ready and runs its present settings, 1 when some are not.
    """
    watched = [*parts, _guardian(place)]
    failed = wait_ready(watched, place, say)
    if repair:
        failed = _repair(watched, failed, place, say)
    if not place.parts.exists():
        say("`make down` took the stack down meanwhile.")
        return 1
    kept = [old for old in parts if old.name not in fresh | failed.keys()]
    refused = [old.name for old in kept if old.settings and not _reload(old, old.settings, place, say)]
    explain(failed, place, say)
    if failed or refused:
        say(startup.verdict([*failed, *refused], len(watched)))
    return 1 if failed or refused else 0


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
                    kept = damage.move_aside(each, data)
                except OSError as problem:
                    raise StackError(
                        f"{data / each.name}: cannot be moved to {data / damage.KEPT}: {problem.strerror}. "
                        "Fix: check permissions and space, or move it by hand, then run `make up`."
                    ) from None
                say(f"Moved {data / each.name} to {kept}. Nothing was deleted.")
                moved = True
            server.revive()
        failed = wait_ready([part for part in parts if part.name in failed], place, say)
    if not moved:
        say(damage.NOTHING)
    return failed


def require_ports(parts: Iterable[Part], place: State) -> None:
    """Check that no stranger holds a port of the stack.

    Raises:
        StackError: names each such port and its owner.
    """

    def ours(owner: ports.Owner | None) -> bool:
        return owner is not None and processes.belongs(owner.pid, place.mark)

    webs = [wanted.web for wanted in parts if wanted.web]
    problems = [
        ports.conflict(key, web.listen, port, ours) for web in webs for key, port in web.ports.items()
    ]
    if found := list(filter(None, problems)):
        raise StackError("\n".join(found))


def _guardian(place: State) -> Part:
    """What starts supervisord again."""
    return Part(
        "guardian",
        (sys.executable, "-m", "stepwatch.deploy.native.guardian", str(place.folder)),
        "starts supervisord again, rotates logs",
        environment={"PYTHONPATH": str(CHECKOUT)},
    )


def _supervise(parts: Sequence[Part], place: State, say: Say, *, as_service: bool) -> set[str]:
    """Return the names of the parts that were started anew."""
    with supervisord.connected(place) as server:
        if server and as_service and not service.runs(place):
            say("Stepwatch moves below systemd: every part starts anew.")
            server.shut_down(place.mark)
        elif server:
            fresh = server.apply() | server.revive()
            say(f"Stepwatch is running; started anew: {', '.join(sorted(fresh)) or 'nothing'}.")
            return fresh
    processes.stop(place.mark, grace=10)  # orphans of a supervisord that was killed
    if service.installed(place):
        service.start(place)
    else:
        supervisord.start(place)
    return {wanted.name for wanted in parts}


def _reload(kept: Part, settings: Settings, place: State, say: Say) -> bool:
    done = wait_loaded(settings, kept.metrics, after=_due(kept, settings, place), patience=_RELOAD_SECONDS)
    log = place.log(kept.name)
    say(
        f"  {kept.name} runs its present settings"
        if done
        else f"  {kept.name} refused its settings: see {log}"
    )
    return done


def _due(kept: Part, settings: Settings, place: State) -> float:
    """Have a part read its settings again; returns the time before which it had not read them."""
    if settings.itself:  # SIGHUP would end it
        return settings.changed()
    before = loaded(settings, http_client.read(kept.metrics))
    with supervisord.connected(place) as server:
        if server:
            server.hang_up(kept.name)
    return before.at if before else 0
