"""Takes the stack down."""

from __future__ import annotations

from stepwatch.native import processes, service, supervisord
from stepwatch.native.state import State
from stepwatch.tables import Say

_ORPHAN_GRACE = 10


def down(place: State, say: Say) -> int:
    """Stop every process of the stack, supervised or orphaned; data and logs stay. The caller holds the lock.

    Returns:
        0 when nothing of it runs any more, 1 when some process could not be ended.
    """
    ran = bool(processes.marked(place.mark))
    place.parts.unlink(missing_ok=True)  # first: so an `up` that waits for its parts learns of this
    left = _stop(place)
    place.forget()
    if left:
        say(f"These processes do not end: {', '.join(str(process.pid) for process in left)}.")
        return 1
    say(f"Stepwatch is down. Data and logs stay in {place.folder}." if ran else "Stepwatch is not running.")
    return 0


def _stop(place: State) -> list[processes.Process]:
    place.give_up()
    processes.resume(place.mark)
    service.stop(place)
    with supervisord.connected(place) as server:
        if server:
            server.shut_down(place.mark)
    return processes.stop(place.mark, grace=_ORPHAN_GRACE)
