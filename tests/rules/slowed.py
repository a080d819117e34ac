"""GPUs whose clocks are held down, by heat or by the box's power supply."""

from __future__ import annotations

from tests.rules.cards import HERE, NEIGHBOUR, OTHER_BOX, THIS, TWICE
from tests.rules.series import selector
from tests.rules.stack import Labels, Scenario

EVER = "x400"


def counted(reason: str, labels: Labels = HERE) -> str:
    return selector("gpu_clock_event_seconds_total", **labels, reason=reason)


def seen(reason: str, labels: Labels = HERE) -> str:
    return selector("gpu_clock_event_active", **labels, reason=reason)


def slowed(reasons: tuple[str, ...], limit: float, wait: int, passed: int) -> tuple[Scenario, ...]:
    """What some reasons do that hold the clocks down for more than a share of the last 5 minutes.

    ``passed``: when a GPU that is held down all the time from second 600 on has passed that share.
    """
    reason, later = reasons[0], passed + wait
    just_above, ended = 1.005 * limit, 1000 + round(300 * (1 - limit)) + 600
    return (
        Scenario(
            "healthy, and held down for other reasons",
            {
                **{counted(each): f"7+0{EVER}" for each in reasons},
                **{seen(each): f"0+0{EVER}" for each in reasons},
                **{
                    counted(other): f"0+5{EVER}" for other in ("power_cap", "sync_boost", "hardware_slowdown")
                },
                **{seen(other): f"1+0{EVER}" for other in ("idle", "application_clocks", "display")},
            },
            {302: [], 902: [], 1502: []},
        ),
        *(
            Scenario(
                f"just above the limit by the driver's own count of {each}",
                {counted(each): f"99+{5 * just_above:.6g}{EVER}"},
                {wait - 3: [], 302 + wait: [THIS], 1502: [THIS]},
            )
            for each in reasons
        ),
        Scenario("just below", {counted(reason): f"99+{5 * 0.995 * limit:.6g}{EVER}"}, {902: [], 1502: []}),
        Scenario("at the limit by how it is seen", {seen(reason): f"{limit}+0{EVER}"}, {902: [], 1502: []}),
        Scenario(
            "just above the limit by how it is seen",
            {seen(reason): f"{just_above:.6g}+0{EVER}"},
            {wait - 3: [], wait + 2: [THIS]},
        ),
        Scenario(
            "seen at each reading, but not counted",
            {seen(reason): f"1+0{EVER}", counted(reason): f"7+0{EVER}"},
            {902: [], 1502: []},
        ),
        Scenario(
            "held down all the time from some time on",
            {counted(reason): f"0+0x120 0+5{EVER}"},
            {later - 8: [], later + 7: [THIS]},
        ),
        Scenario(
            "seen at each reading from some time on",
            {seen(reason): f"0+0x120 1+0{EVER}"},
            {later - 8: [], later + 12: [THIS]},
        ),
        Scenario(
            "held down, until it is fixed",
            {counted(reason): "0+5x200 1000+0x400"},
            {1002: [THIS], 1802: [THIS], 1912: []},
        ),
        Scenario(
            "seen at each reading, until it is fixed",
            {seen(reason): "1+0x200 0+0x400"},
            {1002: [THIS], ended - 23: [THIS], ended + 27: []},
        ),
        Scenario(
            "the driver is reloaded",
            {counted(reason): "4000+0x120 0+0x300"},
            {602: [], 902: [], 1202: []},
        ),
        Scenario(
            "held down, and the exporter does not answer for a minute",
            {counted(reason): "0+5x120 stale _x11 660+5x100"},
            {597: [THIS], 632: [THIS], 672: [THIS], 902: [THIS]},
        ),
        Scenario(
            "one of two GPUs and boxes, seen by two jobs",
            {
                counted(reason): f"0+5{EVER}",
                counted(reason, TWICE): f"0+5{EVER}",
                counted(reason, NEIGHBOUR): f"7+0{EVER}",
                counted(reason, OTHER_BOX): f"7+0{EVER}",
            },
            {902: [THIS]},
        ),
    )


HEAT = slowed(("hardware_thermal", "software_thermal", "thermal"), limit=0.1, wait=300, passed=635)
BRAKE = slowed(("power_brake",), limit=0.01, wait=60, passed=605)
