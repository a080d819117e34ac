"""Boxes whose GPUs, or news of them, are missing."""

from __future__ import annotations

from tests.rules.cards import HERE, NEIGHBOUR, TARGET, up
from tests.rules.series import selector
from tests.rules.stack import Labels, by_the_minute

EXPECTED, LISTED, COLLECTED = (
    selector(name, **TARGET)
    for name in ("gpu_devices_expected", "gpu_devices", "gpu_exporter_last_collect_timestamp_seconds")
)
SIMULATED = selector("gpu_info", **HERE, name="simulated H200")
BOX = {"instance": TARGET["instance"]}
NEVER: dict[float, list[Labels]] = {1: [], 6: [], 12: [], 40: [], 60: []}


def answers(reason: str = "ok", labels: Labels = TARGET) -> str:
    return selector("gpu_exporter_nvml_up", **labels, reason=reason)


def again(series: dict[str, str], job: str = "gpu", instance: str = "a:9411") -> dict[str, str]:
    """The same series of another target."""
    return {
        name.replace('job="gpu"', f'job="{job}"').replace("a:9411", instance): values
        for name, values in series.items()
    }


BOTH = {up("ok"): "1+0x99", up("ok", NEIGHBOUR): "1+0x99"}
WELL = {EXPECTED: "2+0x99", LISTED: "2+0x99", answers(): "1+0x99", **BOTH}
NONE_SEEN = {EXPECTED: "2+0x99", LISTED: "0+0x99", answers(): "1+0x99"}
REBOOTED = {
    EXPECTED: "2+0x10 stale _x4 1+0x1600",
    LISTED: "2+0x10 stale _x4 1+0x1600",
    answers(): "1+0x10 stale _x4 1+0x1600",
    up("ok"): "1+0x10 stale",
    up("ok", NEIGHBOUR): "1+0x10 stale _x4 1+0x1600",
}

MISSING = (
    by_the_minute("all there", WELL, NEVER),
    by_the_minute(
        "after a reboot the driver does not list one, and knows of no other",
        REBOOTED,
        {20: [], 22: [BOX], 60: [BOX], 1448: [BOX], 1458: [BOX], 1462: []},
    ),
    by_the_minute(
        "after a reboot all are back",
        {
            **{
                name: values.replace("1+0x1600", "2+0x99")
                for name, values in REBOOTED.items()
                if "devices" in name
            },
            answers(): REBOOTED[answers()],
            up("ok"): REBOOTED[answers()],
            up("ok", NEIGHBOUR): REBOOTED[answers()],
        },
        NEVER,
    ),
    by_the_minute(
        "GPULost reports the one that is lost",
        {**WELL, up("ok"): "1+0x5 stale", up("lost"): "_x6 0+0x99", LISTED: "2+0x5 1+0x99"},
        NEVER,
    ),
    by_the_minute(
        "one that is expected never was there", {**WELL, EXPECTED: "3+0x99"}, {4: [], 5: [BOX], 60: [BOX]}
    ),
    by_the_minute("none was there of those that are expected", NONE_SEEN, {4: [], 5: [BOX], 60: [BOX]}),
    by_the_minute("more than were expected", {**WELL, EXPECTED: "1+0x99"}, NEVER),
    by_the_minute(
        "the driver takes some minutes for all of them",
        {**WELL, EXPECTED: "3+0x99", up("ok", {**HERE, "gpu": "5", "uuid": "GPU-5"}): "_x4 1+0x99"},
        NEVER,
    ),
    by_the_minute(
        "the driver does not answer",
        {EXPECTED: "2+0x99", LISTED: "0+0x99", answers("timeout"): "0+0x99"},
        NEVER,
    ),
    by_the_minute("no GPUs", {EXPECTED: "0+0x99", LISTED: "0+0x99", answers(): "1+0x99"}, NEVER),
    by_the_minute(
        "those of the demo are gone",
        {EXPECTED: "8+0x9 0+0x99", LISTED: "8+0x9 0+0x99", answers(): "1+0x99", SIMULATED: "1+0x9 stale"},
        NEVER,
    ),
    by_the_minute(
        "those of the demo have been gone for a day",
        {
            **{name: values.replace("x99", "x1600") for name, values in WELL.items()},
            EXPECTED: "3+0x1600",
            SIMULATED: "1+0x9 stale",
        },
        {60: [], 1452: [], 1456: [BOX]},
    ),
    by_the_minute(
        "one is missing, and the exporter does not answer for some minutes",
        {name: f"{values.partition('+')[0]}+0x30 stale _x3 {values}" for name, values in NONE_SEEN.items()},
        {30: [BOX], 33: [BOX], 36: [BOX], 60: [BOX]},
    ),
    by_the_minute(
        "one of two boxes, seen by two jobs",
        {
            **WELL,
            EXPECTED: "3+0x99",
            **again({**WELL, EXPECTED: "3+0x99"}, job="mine"),
            **again(WELL, instance="b:9411"),
        },
        {5: [BOX]},
    ),
)

FRESH = {COLLECTED: "0+60x1600", EXPECTED: "2+0x1600", answers(): "1+0x1600", up("ok"): "1+0x1600"}
STARTED_WITHOUT = {
    EXPECTED: "2+0x10 0+0x1600",
    answers(): "1+0x10 stale",
    answers("driver_not_loaded"): "_x11 0+0x1600",
    up("ok"): "1+0x10 stale",
}

STALE = (
    by_the_minute("all is well", FRESH, NEVER),
    by_the_minute("as old as it may be", {**FRESH, COLLECTED: "-60+60x99"}, NEVER),
    by_the_minute("just older", {**FRESH, COLLECTED: "-60.5+60x99"}, {4: [], 5: [BOX], 60: [BOX]}),
    by_the_minute(
        "is not read any more", {**FRESH, COLLECTED: "0+60x10 600+0x99"}, {16: [], 17: [BOX], 60: [BOX]}
    ),
    by_the_minute("is not read for some minutes", {**FRESH, COLLECTED: "0+60x10 600+0x4 960+60x99"}, NEVER),
    by_the_minute(
        "the exporter was started without a driver, though there were GPUs",
        STARTED_WITHOUT,
        {15: [], 17: [BOX], 60: [BOX], 1449: [BOX], 1452: []},
    ),
    by_the_minute(
        "GPULost reports that the driver does not answer",
        {
            **FRESH,
            COLLECTED: "0+60x10 600+0x99",
            answers(): "1+0x10 stale",
            answers("timeout"): "_x11 0+0x99",
            up("ok"): "1+0x10 stale",
            up("timeout"): "_x11 0+0x99",
        },
        NEVER,
    ),
    by_the_minute(
        "released on purpose",
        {
            COLLECTED: "0+60x10 600+0x99",
            EXPECTED: "2+0x99",
            answers(): "1+0x10 stale",
            answers("released"): "_x11 0+0x99",
        },
        NEVER,
    ),
    by_the_minute(
        "a box without GPUs, and without a driver",
        {EXPECTED: "0+0x99", answers("library_not_found"): "0+0x99"},
        NEVER,
    ),
    by_the_minute(
        "a driver without GPUs", {COLLECTED: "0+0x99", EXPECTED: "0+0x99", answers(): "1+0x99"}, NEVER
    ),
    by_the_minute("the demo's are gone", {**STARTED_WITHOUT, SIMULATED: "1+0x10 stale"}, NEVER),
    by_the_minute(
        "the demo's have been gone for a day",
        {**FRESH, COLLECTED: "0+0x1600", SIMULATED: "1+0x9 stale"},
        {60: [], 1452: [], 1456: [BOX]},
    ),
    by_the_minute(
        "the exporter does not answer",
        {name: values.replace("x1600", "x9 stale") for name, values in FRESH.items()},
        NEVER,
    ),
    by_the_minute(
        "one of two boxes, seen by two jobs",
        {**STARTED_WITHOUT, **again(STARTED_WITHOUT, job="mine"), **again(FRESH, instance="b:9411")},
        {17: [BOX]},
    ),
)
