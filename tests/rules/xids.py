"""Errors of GPUs, which happen in an instant, at whatever time, and fire for an hour."""

from __future__ import annotations

from tests.rules.cards import HERE, NEIGHBOUR, OTHER_BOX, TARGET, TARGET_UP, TWICE, TWICE_UP, alert, up
from tests.rules.series import selector
from tests.rules.stack import Labels, Scenario, by_the_minute


def xid(code: int, labels: Labels = HERE) -> str:
    return selector("gpu_xid_errors_total", **labels, xid=str(code))


LONG = "1+0x200"
"""A sample a minute, here and below: errors fire for an hour."""

THERE = {TARGET_UP: LONG, up("ok"): LONG}
FOR_FIVE_MINUTES_NOT = {TARGET_UP: "1+0x30 0+0x4 1+0x200", up("ok"): "1+0x30 stale _x4 1+0x200"}


def xids(listed: int, unlisted: int, other: int) -> tuple[Scenario, ...]:
    """What a severity does about a code that is exported from the start, one that is not, and another's."""
    first, appeared = alert(HERE, xid=str(listed)), alert(HERE, xid=str(unlisted))
    unnamed = {"instance": TARGET["instance"], "xid": str(listed)}
    return (
        by_the_minute("none", {**THERE, xid(listed): "0+0x200"}, {1: [], 60: [], 150: []}),
        by_the_minute(
            "one happens",
            {**THERE, xid(listed): "0+0x11 1+0x200"},
            {11: [], 12: [first], 70: [first], 80: [first], 83: [], 150: []},
        ),
        by_the_minute(
            "it happens again",
            {**THERE, xid(listed): "0+0x11 1+0x39 2+0x200"},
            {12: [first], 83: [first], 110: [first], 123: []},
        ),
        by_the_minute(
            "the first of a code that was not exported",
            {**THERE, xid(unlisted): "_x12 1+0x200"},
            {11: [], 12: [appeared], 70: [appeared], 80: [appeared], 83: [], 150: []},
        ),
        by_the_minute(
            "the second of such a code, long after",
            {**THERE, xid(unlisted): "_x12 1+0x87 2+0x100"},
            {99: [], 100: [appeared], 158: [appeared], 171: []},
        ),
        by_the_minute(
            "happened before Prometheus began to read",
            {**THERE, xid(listed): "3+0x200", xid(unlisted): "2+0x200"},
            {0: [], 1: [], 59: [], 61: [], 125: []},
        ),
        by_the_minute(
            "long ago, and the exporter does not answer for some minutes",
            {**FOR_FIVE_MINUTES_NOT, xid(unlisted): "2+0x30 stale _x4 2+0x200"},
            {30: [], 32: [], 34: [], 36: [], 90: [], 93: [], 95: [], 155: []},
        ),
        by_the_minute(
            "long ago, and the counter is missing from some pages",
            {**THERE, xid(unlisted): "2+0x79 stale _x2 2+0x200"},
            {80: [], 83: [], 84: [], 120: [], 139: [], 140: [], 141: [], 142: [], 143: [], 160: []},
        ),
        by_the_minute(
            "just now, and the exporter does not answer for some minutes",
            {
                **FOR_FIVE_MINUTES_NOT,
                xid(listed): "0+0x11 1+0x18 stale _x4 1+0x200",
                xid(unlisted): "_x12 1+0x18 stale _x4 1+0x200",
            },
            {at: [first, appeared] for at in (30, 31, 35, 36, 70)},
        ),
        by_the_minute(
            "just now, and the exporter is restarted",
            {
                **FOR_FIVE_MINUTES_NOT,
                xid(listed): "0+0x11 1+0x18 stale _x4 0+0x200",
                xid(unlisted): "_x12 1+0x18 stale",
            },
            {30: [first, appeared], 40: [first, appeared], 42: [first], 70: [first], 83: []},
        ),
        by_the_minute(
            "long ago, and the exporter is restarted",
            {**THERE, xid(unlisted): "1+0x89 stale", xid(listed): "1+0x89 stale _x2 0+0x100"},
            {89: [], 91: [], 94: [], 140: [], 150: [], 160: []},
        ),
        by_the_minute(
            "happened before Prometheus began to read, and the exporter is restarted",
            {**THERE, xid(unlisted): "1+0x9 stale", xid(listed): "1+0x9 stale _x2 0+0x100"},
            {9: [], 10: [], 13: [], 60: []},
        ),
        by_the_minute(
            "again long after a restart",
            {**THERE, xid(unlisted): "1+0x5 stale _x120 1+0x30"},
            {5: [], 7: [], 126: [], 127: [appeared], 140: [appeared]},
        ),
        by_the_minute(
            "the GPU is first seen some time after the exporter",
            {**THERE, xid(listed): "_x12 0+0x100", xid(unlisted): "_x12 0+0x100"},
            {12: [], 60: []},
        ),
        by_the_minute(
            "just now, and the GPU is lost",
            {
                TARGET_UP: LONG,
                up("ok"): "1+0x12 stale",
                up("lost"): "_x13 0+0x200",
                xid(listed): "0+0x11 1+0x200",
            },
            {12: [first], 14: [first], 70: [first], 80: [first], 83: []},
        ),
        by_the_minute(
            "just now, and the exporter is gone for good",
            {
                TARGET_UP: "1+0x30 0+0x200",
                up("ok"): "1+0x30 stale",
                xid(listed): "0+0x11 1+0x18 stale",
                xid(unlisted): "_x12 1+0x18 stale",
            },
            {30: [first, appeared], 40: [first, appeared], 42: [], 70: []},
        ),
        by_the_minute(
            "just now, and another GPU takes its place",
            {
                TARGET_UP: LONG,
                up("ok"): "1+0x30 stale",
                up("ok", {**HERE, "uuid": "GPU-9"}): "_x31 1+0x200",
                xid(listed): "0+0x11 1+0x18 stale",
                xid(listed, {**HERE, "uuid": "GPU-9"}): "_x31 0+0x200",
            },
            {30: [first], 40: [first], 42: [], 70: []},
        ),
        by_the_minute(
            "of a GPU that the driver does not name, until the exporter is gone",
            {TARGET_UP: "1+0x32 0+0x100", xid(listed, TARGET): "_x12 1+0x5 2+0x14 stale"},
            {11: [], 12: [unnamed], 32: [unnamed], 42: [unnamed], 44: [], 60: []},
        ),
        by_the_minute(
            "each GPU, box and code has its own",
            {
                **THERE,
                up("ok", NEIGHBOUR): LONG,
                up("ok", OTHER_BOX): LONG,
                xid(listed): "0+0x11 1+0x10",
                xid(listed, NEIGHBOUR): "0+0x11 1+0x10",
                xid(listed, OTHER_BOX): "0+0x11 1+0x10",
                xid(unlisted, NEIGHBOUR): "_x12 2+0x10",
                xid(unlisted): "0+0x20",
            },
            {
                12: [
                    *(alert(each, xid=str(listed)) for each in (HERE, NEIGHBOUR, OTHER_BOX)),
                    alert(NEIGHBOUR, xid=str(unlisted)),
                ]
            },
        ),
        by_the_minute(
            "seen by two jobs, of which one began later",
            {
                **THERE,
                TWICE_UP: "_x30 1+0x200",
                xid(listed): "0+0x11 1+0x200",
                xid(listed, TWICE): "_x30 1+0x200",
            },
            {12: [first], 31: [first], 83: []},
        ),
        by_the_minute(
            "codes of another severity, or of none",
            {**THERE, xid(other): "0+0x11 1+0x30", xid(45): "_x12 1+0x30"},
            {12: [], 30: []},
        ),
    )
