"""Links of a GPU: NVLinks with errors, a slow PCIe link, and GPUs that are cut off from the others."""

from __future__ import annotations

from tests.rules.cards import HERE, NEIGHBOUR, OTHER_BOX, THIS, TWICE, alert
from tests.rules.series import selector
from tests.rules.stack import Labels, by_the_minute


def errors(kind: str, labels: Labels = HERE) -> str:
    return selector("gpu_nvlink_errors_total", **labels, type=kind)


GRAVE = ("crc_data", "replay", "recovery", "ecc", "link_recovery", "link_recovery_failed")

LINK_ERRORS = (
    by_the_minute(
        "healthy, with a garbled packet now and then",
        {errors("crc_flit"): "500+30x200", **{errors(kind): "7+0x200" for kind in GRAVE}},
        {1: [], 60: [], 150: []},
    ),
    by_the_minute("as many garbled packets as do not matter", {errors("crc_flit"): "500+6000x99"}, {30: []}),
    by_the_minute("just more", {errors("crc_flit"): "500+6030x99"}, {1: [], 9: [THIS], 90: [THIS]}),
    by_the_minute(
        "too many on one of its links",
        {
            errors("crc", {**HERE, "link": "3"}): "500+6030x99",
            errors("crc", {**HERE, "link": "4"}): "500+60x99",
        },
        {1: [], 9: [THIS], 90: [THIS]},
    ),
    by_the_minute(
        "many garbled packets, for a while",
        {errors("crc_flit"): "0+0x29 0+12000x19 240000+0x99"},
        {30: [], 33: [], 34: [THIS], 60: [THIS], 67: []},
    ),
    *(
        by_the_minute(
            f"as many errors of {kind} as may be, then one more",
            {errors(kind): "3+0x11 5+0x7 6+0x100"},
            {12: [], 19: [], 20: [], 21: [THIS], 70: [THIS], 80: [THIS], 83: []},
        )
        for kind in GRAVE
    ),
    by_the_minute("two of each kind", {errors(kind): "0+0x11 2+0x99" for kind in GRAVE}, {30: []}),
    by_the_minute(
        "of a kind that newer links have", {errors("symbol"): "0+9000x99"}, {1: [], 30: [], 90: []}
    ),
    by_the_minute("the driver is reloaded", {errors("replay"): "90+0x20 0+0x99"}, {22: [], 60: []}),
    by_the_minute(
        "many, and the exporter does not answer for some minutes",
        {errors("replay"): "0+0x11 50+0x18 stale _x4 50+0x99"},
        {30: [THIS], 33: [THIS], 36: [THIS], 70: [THIS]},
    ),
    by_the_minute(
        "one of two GPUs and boxes, seen by two jobs",
        {
            errors("recovery"): "0+0x11 50+0x99",
            errors("recovery", TWICE): "0+0x11 50+0x99",
            errors("recovery", NEIGHBOUR): "50+0x99",
            errors("recovery", OTHER_BOX): "50+0x99",
        },
        {14: [THIS]},
    ),
)


def generation(kind: str, labels: Labels = HERE) -> str:
    return selector("gpu_pcie_link_generation", **labels, kind=kind)


def width(kind: str, labels: Labels = HERE) -> str:
    return selector("gpu_pcie_link_width", **labels, kind=kind)


BUSY = selector("gpu_utilization_ratio", **HERE)
ACTIVE = selector("gpu_graphics_active_ratio", **HERE)
LINK = {
    generation("current"): "5+0x99",
    generation("max"): "5+0x99",
    width("current"): "16+0x99",
    width("max"): "16+0x99",
    BUSY: "0.9+0x99",
}
SLOW = {**LINK, generation("current"): "4+0x99"}
NARROW = {**LINK, width("current"): "8+0x99"}
LEFT_ALONE: dict[float, list[Labels]] = {1: [], 12: [], 40: [], 60: []}

SLOW_LINK = (
    by_the_minute("healthy", LINK, LEFT_ALONE),
    by_the_minute("a generation too low", SLOW, {9: [], 10: [THIS], 60: [THIS]}),
    by_the_minute("lanes are missing", NARROW, {9: [], 10: [THIS], 60: [THIS]}),
    by_the_minute("idle, and at rest", {**SLOW, BUSY: "0+0x99"}, LEFT_ALONE),
    by_the_minute("with as much work as does not count", {**SLOW, BUSY: "0.3+0x99"}, LEFT_ALONE),
    by_the_minute("with just more", {**SLOW, BUSY: "0.302+0x99"}, {9: [], 10: [THIS]}),
    by_the_minute(
        "rests between steps",
        {**LINK, generation("current"): " ".join(["1+0x4 5"] * 16), BUSY: " ".join(["0+0x1 1+0x3"] * 16)},
        LEFT_ALONE,
    ),
    by_the_minute(
        "comes to rest when the work ends",
        {**LINK, generation("current"): "5+0x19 1+0x79", BUSY: "0.9+0x19 0+0x79"},
        LEFT_ALONE,
    ),
    by_the_minute(
        "gets slow under load",
        {**LINK, generation("current"): "5+0x9 3+0x89"},
        {19: [], 28: [], 31: [THIS], 60: [THIS]},
    ),
    by_the_minute(
        "loses lanes under load",
        {**LINK, width("current"): "16+0x9 4+0x89"},
        {19: [], 28: [], 31: [THIS], 60: [THIS]},
    ),
    by_the_minute(
        "slow, and gets work",
        {**SLOW, BUSY: "0+0x29 0.9+0x69"},
        {42: [], 45: [THIS]},
    ),
    by_the_minute(
        "slow, and busy by the engines' metric only",
        {**SLOW, BUSY: "_x99", ACTIVE: "0+0x29 0.9+0x69"},
        {42: [], 45: [THIS]},
    ),
    by_the_minute(
        "is reseated", {**LINK, width("current"): "8+0x19 16+0x79"}, {20: [THIS], 29: [THIS], 32: []}
    ),
    by_the_minute("what there could be is not known", {**SLOW, generation("max"): "_x99"}, LEFT_ALONE),
    by_the_minute("whether it has work is not known", {**SLOW, BUSY: "_x99"}, LEFT_ALONE),
    by_the_minute(
        "slow, and the exporter does not answer for some minutes",
        {name: f"{value.partition('+')[0]}+0x30 stale _x3 {value}" for name, value in SLOW.items()},
        {30: [THIS], 33: [THIS], 36: [THIS], 60: [THIS]},
    ),
    by_the_minute(
        "one of two GPUs and boxes, seen by two jobs",
        {
            **SLOW,
            **{name.replace('"gpu",', '"mine",', 1): values for name, values in SLOW.items()},
            **{name.replace('"3"', '"4"').replace("GPU-3", "GPU-4"): values for name, values in LINK.items()},
            **{name.replace("a:9411", "b:9411"): values for name, values in LINK.items()},
        },
        {12: [THIS]},
    ),
)


def fabric(labels: Labels = HERE) -> str:
    return selector("gpu_fabric_state", **labels)


def links(labels: Labels = HERE) -> str:
    return selector("gpu_nvlink_links", **labels, state="active")


def card(state: int) -> Labels:
    return {**HERE, "gpu": f"{state}", "uuid": f"GPU-{state}"}


UNUSED_LINKS = selector("gpu_nvlink_links", **HERE, state="inactive")
SPLIT = selector("gpu_mig_mode", **HERE)
FEWER = "18+0x20 17+0x1600"

CUT_OFF = (
    by_the_minute("healthy", {fabric(): "3+0x99", links(): "18+0x99", SPLIT: "0+0x99"}, LEFT_ALONE),
    by_the_minute("is started", {fabric(): "1+0x4 2+0x3 3+0x99"}, LEFT_ALONE),
    by_the_minute(
        "goes, and comes", {fabric(): "3+0x20 2+0x19 3+0x99"}, {30: [], 31: [THIS], 50: [THIS], 52: []}
    ),
    by_the_minute(
        "a card for each state",
        {fabric(card(state)): f"{state}+0x99" for state in range(4)},
        {9: [], 10: [alert(card(1)), alert(card(2))], 60: [alert(card(1)), alert(card(2))]},
    ),
    by_the_minute("has links without a bridge", {links(): "4+0x99", UNUSED_LINKS: "8+0x99"}, LEFT_ALONE),
    by_the_minute("has never had a link", {links(): "0+0x99", UNUSED_LINKS: "12+0x99"}, LEFT_ALONE),
    by_the_minute(
        "loses a link, for good",
        {links(): FEWER, SPLIT: "0+0x1700"},
        {30: [], 32: [THIS], 1458: [THIS], 1468: [THIS], 1472: []},
    ),
    by_the_minute(
        "loses all of a card that cannot be split", {links(): "4+0x20 0+0x99"}, {30: [], 32: [THIS]}
    ),
    by_the_minute("loses them for some minutes", {links(): "18+0x20 0+0x6 18+0x99"}, LEFT_ALONE),
    by_the_minute(
        "is split, and goes without", {links(): "12+0x20 0+0x99", SPLIT: "0+0x20 1+0x99"}, LEFT_ALONE
    ),
    by_the_minute(
        "cut off, and the exporter does not answer for some minutes",
        {fabric(): "2+0x30 stale _x3 2+0x99", links(): "18+0x9 0+0x20 stale _x3 0+0x99"},
        {30: [THIS], 33: [THIS], 36: [THIS], 60: [THIS]},
    ),
    by_the_minute(
        "one of two GPUs and boxes, seen by two jobs",
        {
            fabric(): "2+0x99",
            fabric(TWICE): "2+0x99",
            fabric(NEIGHBOUR): "3+0x99",
            fabric(OTHER_BOX): "3+0x99",
            links(): "18+0x5 2+0x99",
            links(TWICE): "18+0x5 2+0x99",
        },
        {12: [THIS]},
    ),
)
