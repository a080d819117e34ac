"""Takes the stack down."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from stepwatch.deploy.native import part, service, supervisord
from stepwatch.deploy.native.errors import DamagedStateError
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.state import State
from stepwatch.services import demo
from stepwatch.system import processes
from stepwatch.system.terminal import Say

_ORPHAN_GRACE = 10
_UNSCRAPED_SECONDS = 20
"""Longer than the interval of the slowest scrape, that of the GPUs."""


def down(place: State, say: Say) -> int:
    """Stop every process of the stack, supervised or orphaned; data and logs stay. The caller holds the lock.

    Returns:
        0 when nothing of it runs any more, 1 when some process could not be ended.
    """
    ran = bool(processes.marked(place.mark))
    parts: list[Part] = []
    with contextlib.suppress(DamagedStateError):
        parts = part.load(place.parts)
    place.parts.unlink(missing_ok=True)  # first: so an `up` that waits for its parts learns of this
    left = _stop(place, parts, say)
    place.forget()
    if left:
        say(f"These processes do not end: {', '.join(str(process.pid) for process in left)}.")
        return 1
    say(f"Stepwatch is down. Data and logs stay in {place.folder}." if ran else "Stepwatch is not running.")
    return 0


def _stop(place: State, parts: Iterable[Part], say: Say) -> list[processes.Process]:
    place.give_up()
    processes.resume(place.mark)
    addresses = {each.name: each.address for each in parts}
    with supervisord.connected(place) as server:
        if server and "demo" in addresses:
            for name in ("exporter", "gpu"):
                server.stop(name)
            say(f"Waiting until Prometheus has seen the end of the demo: at most {_UNSCRAPED_SECONDS} s.")
            demo.wait_unscraped(f"http://{addresses['prometheus']}", _UNSCRAPED_SECONDS)
    service.stop(place)
    with supervisord.connected(place) as server:
        if server:
            server.shut_down(place.mark)
    return processes.stop(place.mark, grace=_ORPHAN_GRACE)
