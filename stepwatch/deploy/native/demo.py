"""Has the demo start over, or end, as if it had never run."""

from __future__ import annotations

import time
from collections.abc import Mapping

from stepwatch.deploy.native import part, supervisord
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.readiness import explain, wait_ready
from stepwatch.deploy.native.state import State
from stepwatch.services import demo
from stepwatch.system.terminal import Say

SIMULATIONS = ("demo", "gpu")


def demo_reset(place: State, say: Say) -> int:
    """Start the simulated runs and GPUs over, and end the alerts that they raised. The caller holds the lock.

    Prometheus starts again as well, keeping its history: it would hold on to those alerts.

    Returns:
        0 when the demo runs anew, 1 when it does not run, or a part does not come up again.
    """
    parts = {each.name: each for each in part.load(place.parts)}
    with supervisord.connected(place) as server:
        if not server or "demo" not in parts:
            say("The demo is not running. `make up DEMO=1` starts it.")
            return 1
        begun = time.time()
        for name in SIMULATIONS:
            server.restart(name)
        say("The simulated runs and GPUs start over.")
        demo.wait_started(f"http://{parts['prometheus'].address}", begun)
    failed = wait_ready([parts[name] for name in SIMULATIONS], place, say)
    explain(failed, place, say)
    count, ready = _end_alerts(parts, place, say)
    say(f"{count} alerts of the demo are over. They come again within three minutes.")
    return 0 if ready and not failed else 1


def end_demo(place: State, say: Say) -> None:
    """End the alerts that the demo raised, once its processes are gone. The caller holds the lock."""
    parts = {each.name: each for each in part.load(place.parts)}
    demo.wait_gone(f"http://{parts['prometheus'].address}")
    count, _ = _end_alerts(parts, place, say)
    say(f"The demo is gone; {count} alerts of it are over.")


def _end_alerts(parts: Mapping[str, Part], place: State, say: Say) -> tuple[int, bool]:
    """How many alerts were ended, and whether Prometheus is up again."""
    with supervisord.connected(place) as server:
        if server:
            server.restart("prometheus")
    failed = wait_ready([parts["prometheus"]], place, say)
    explain(failed, place, say)
    count = demo.end_alerts(f"http://{parts['alertmanager'].address}", parts["gpu"].address)
    return count, not failed
