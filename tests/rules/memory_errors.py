"""Memory errors of GPUs, bad parts that wait to be replaced, and what the driver wants done about a fault."""

from __future__ import annotations

from tests.rules.cards import HERE, NEIGHBOUR, OTHER_BOX, THIS, TWICE, alert
from tests.rules.series import selector
from tests.rules.stack import Labels, Scenario, by_the_minute


def _errors(counter: str, kind: str = "uncorrected", labels: Labels = HERE) -> str:
    return selector(counter, **labels, type=kind)


LIFE, SINCE_LOADED = _errors("gpu_ecc_errors_total"), _errors("gpu_ecc_volatile_errors_total")
NONE = {LIFE: "3+0x200", SINCE_LOADED: "0+0x200"}
HAPPENS, STAYS = "0+0x11 1+0x200", "0+0x200"
FOR_AN_HOUR = {11: [], 12: [THIS], 70: [THIS], 80: [THIS], 83: [], 150: []}

UNCORRECTABLE = (
    by_the_minute(
        "only such as were corrected",
        {**NONE, _errors("gpu_ecc_errors_total", "corrected"): "0+5x200"},
        {1: [], 60: [], 150: []},
    ),
    by_the_minute("one, in both counts", {LIFE: "3+0x11 4+0x200", SINCE_LOADED: HAPPENS}, FOR_AN_HOUR),
    by_the_minute(
        "one, and the count of its life lags behind", {LIFE: STAYS, SINCE_LOADED: HAPPENS}, FOR_AN_HOUR
    ),
    by_the_minute("one, of a card that counts its life only", {LIFE: HAPPENS}, FOR_AN_HOUR),
    by_the_minute("long before Prometheus began to read", {LIFE: "7+0x200"}, {0: [], 1: [], 61: []}),
    by_the_minute(
        "long ago, and the driver is reloaded",
        {LIFE: "3+0x200", SINCE_LOADED: "2+0x20 _x3 0+0x200"},
        {20: [], 24: [], 60: [], 100: []},
    ),
    by_the_minute(
        "one since the driver was reloaded",
        {LIFE: "3+0x25 4+0x200", SINCE_LOADED: "2+0x20 _x3 0+0x1 1+0x200"},
        {24: [], 27: [THIS], 84: [THIS]},
    ),
    by_the_minute(
        "just now, and the exporter does not answer for some minutes",
        {LIFE: "0+0x11 1+0x18 stale _x4 1+0x200"},
        {30: [THIS], 33: [THIS], 36: [THIS], 70: [THIS], 83: []},
    ),
    by_the_minute(
        "just now, and another card takes its place",
        {
            LIFE: "0+0x11 1+0x18 stale",
            _errors("gpu_ecc_errors_total", labels={**HERE, "uuid": "GPU-9"}): "_x31 5+0x99",
        },
        {30: [THIS], 40: [THIS], 42: [], 70: []},
    ),
    by_the_minute(
        "one GPU of two, one box of two, seen by two jobs",
        {
            LIFE: HAPPENS,
            _errors("gpu_ecc_errors_total", labels=TWICE): HAPPENS,
            _errors("gpu_ecc_errors_total", labels=NEIGHBOUR): STAYS,
            _errors("gpu_ecc_errors_total", labels=OTHER_BOX): STAYS,
        },
        {12: [THIS], 70: [THIS]},
    ),
)


def _flag(metric: str) -> tuple[Scenario, ...]:
    """What a flag that a card raises, and keeps until it is reset or exchanged, leads to in a minute."""
    here = selector(metric, **HERE)
    return (
        Scenario("not raised", {here: "0+0x200"}, {62: [], 502: []}),
        Scenario("raised", {here: "0+0x11 1+0x200"}, {117: [], 122: [THIS], 902: [THIS]}),
        Scenario("raised, and taken back", {here: "1+0x35 0+0x300"}, {62: [THIS], 772: [THIS], 782: []}),
        Scenario("raised for half a minute", {here: "0+0x11 1+0x6 0+0x99"}, {92: [], 122: [], 302: []}),
        Scenario(
            "raised, and the exporter does not answer for a minute",
            {here: "1+0x30 stale _x11 1+0x100"},
            {152: [THIS], 162: [THIS], 212: [THIS], 282: [THIS]},
        ),
        Scenario(
            "by one of two GPUs and boxes, seen by two jobs",
            {
                here: "1+0x99",
                selector(metric, **TWICE): "1+0x99",
                selector(metric, **NEIGHBOUR): "0+0x99",
                selector(metric, **OTHER_BOX): "0+0x99",
            },
            {57: [], 62: [THIS]},
        ),
    )


PENDING = (*_flag("gpu_row_remap_pending"), *_flag("gpu_retired_pages_pending"))
FAILED = _flag("gpu_row_remap_failed")

PAGING, WARNING = (1, 2, 3, 6, 7), (4, 5, 8)


def _card(action: int) -> Labels:
    return {**HERE, "gpu": f"{action}", "uuid": f"GPU-{action}"}


def _recovery(of: tuple[int, ...], others: tuple[int, ...]) -> tuple[Scenario, ...]:
    """What actions of a severity do, and those of none or the other."""
    first = selector("gpu_recovery_action", **HERE)
    return (
        Scenario(
            "wanted, and done",
            {first: f"0+0x11 {of[0]}+0x35 0+0x300"},
            {117: [], 122: [THIS], 827: [THIS], 842: []},
        ),
        Scenario(
            "a card for each action",
            {
                selector("gpu_recovery_action", **_card(action)): f"{action}+0x99"
                for action in (0, *of, *others)
            },
            {57: [], 62: [alert(_card(action)) for action in of]},
        ),
        Scenario(
            "another one is wanted from then on",
            {first: f"{of[0]}+0x35 {of[1]}+0x200"},
            {172: [THIS], 187: [THIS], 902: [THIS]},
        ),
        Scenario(
            "wanted, seen by two jobs, which do not answer for a minute",
            dict.fromkeys(
                (first, selector("gpu_recovery_action", **TWICE)), f"{of[0]}+0x30 stale _x11 {of[0]}+0x99"
            ),
            {152: [THIS], 162: [THIS], 212: [THIS], 302: [THIS]},
        ),
    )


RECOVERY = _recovery(PAGING, WARNING)
RECOVERY_LATER = _recovery(WARNING, PAGING)
