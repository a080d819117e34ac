"""Has parts supervised: starts them, or brings running ones up to date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwatch.native import part, ports, processes, supervisord
from stepwatch.native.errors import StackError
from stepwatch.native.part import Part
from stepwatch.native.readiness import Wait
from stepwatch.native.state import State
from stepwatch.settings import Settings, loaded, wait_loaded
from stepwatch.tables import Say

_RELOAD_SECONDS = 15


def bring_up(parts: Sequence[Part], place: State, say: Say) -> int:
    """Start what does not run, restart what changed, have the rest read its settings again.

    Returns:
        0 when every part is ready and runs its present settings, 1 when some are not.

    Raises:
        StackError: a port is in use or supervisord does not start; nothing was touched.
    """
    place.create()
    with place.lock():
        require_ports(parts, place)
        supervisord.configure(place, parts)
        part.save(parts, place.parts)
        fresh = _supervise(parts, place, say)
    missing = Wait(place, say).until_ready(parts)
    kept = [old for old in parts if old.name not in fresh | missing]
    refused = [old.name for old in kept if old.settings and not _reload(old, old.settings, place, say)]
    return 1 if missing or refused else 0


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


def _supervise(parts: Sequence[Part], place: State, say: Say) -> set[str]:
    """Return the names of the parts that were started anew."""
    with supervisord.connected(place) as server:
        if server:
            fresh = server.apply() | server.revive()
            say(f"Stepwatch is running; started anew: {', '.join(sorted(fresh)) or 'nothing'}.")
            return fresh
    processes.stop(place.mark, grace=10)  # orphans of a supervisord that was killed
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
    before = loaded(settings, kept.metrics)
    with supervisord.connected(place) as server:
        if server:
            server.hang_up(kept.name)
    return before.at if before else 0
