"""The cases of every rule about GPUs, as those about the stack: series over time, and what fires when."""

from __future__ import annotations

from tests.rules import boxes, links, memory_errors, slowed
from tests.rules.cards import (
    HERE,
    NEIGHBOUR,
    OTHER_BOX,
    TARGET,
    TARGET_UP,
    THIS,
    TOTAL,
    TWICE,
    USED,
    alert,
    up,
)
from tests.rules.idle import UNUSED
from tests.rules.series import selector
from tests.rules.stack import UP, Scenario
from tests.rules.xids import xids

LOST = (
    Scenario(
        "healthy, also without the exporter for a minute",
        {up("ok"): "1+0x30 stale _x11 1+0x100", TARGET_UP: "1+0x30 0+0x11 1+0x100"},
        {57: [], 167: [], 222: [], 502: []},
    ),
    Scenario(
        "no GPU, no driver",
        {TARGET_UP: UP, selector("gpu_exporter_nvml_up", **TARGET, reason="no_library"): "0+0x100"},
        {62: [], 402: []},
    ),
    Scenario(
        "is lost, and comes back",
        {up("ok"): "1+0x11 stale _x27 1+0x200", up("lost"): "_x12 0+0x27 stale"},
        {87: [], 92: [THIS], 197: [THIS], 797: [THIS], 802: []},
    ),
    Scenario(
        "is lost for another reason from one scrape to the next",
        {up("ok"): "1+0x11 stale", up("timeout"): "_x12 0+0x2 stale", up("lost"): "_x15 0+0x100"},
        {87: [], 92: [THIS], 502: [THIS]},
    ),
    Scenario(
        "cannot be read for 20 s",
        {up("ok"): "1+0x11 stale _x3 1+0x100", up("timeout"): "_x12 0+0x3 stale"},
        {77: [], 92: [], 122: []},
    ),
    Scenario(
        "lost, and the exporter does not answer for a minute",
        {up("lost"): "0+0x30 stale _x11 0+0x100"},
        {32: [THIS], 157: [THIS], 167: [THIS], 207: [THIS], 222: [THIS], 252: [THIS]},
    ),
    Scenario(
        "lost, and the exporter, restarted, cannot learn its UUID",
        {up("lost"): "0+0x11 stale", up("lost", {**TARGET, "gpu": "3"}): "_x14 0+0x200"},
        {
            57: [THIS],
            102: [THIS, {"instance": "a:9411", "gpu": "3"}],
            662: [{"instance": "a:9411", "gpu": "3"}],
        },
    ),
    Scenario(
        "one GPU of two, one box of two",
        {up("lost"): "0+0x100", up("ok", NEIGHBOUR): "1+0x100", up("ok", OTHER_BOX): "1+0x100"},
        {27: [], 32: [THIS], 402: [THIS]},
    ),
    Scenario(
        "all GPUs of two boxes",
        {up("lost", each): "0+0x100" for each in (HERE, NEIGHBOUR, OTHER_BOX)},
        {32: [THIS, alert(NEIGHBOUR), alert(OTHER_BOX)]},
    ),
    Scenario("seen by two jobs", {up("lost"): "0+0x100", up("lost", TWICE): "0+0x100"}, {32: [THIS]}),
)


MARGIN = selector("gpu_temperature_margin_celsius", **HERE)
SLOWDOWN = selector("gpu_temperature_threshold_celsius", **HERE, threshold="slowdown")
SHUTDOWN = selector("gpu_temperature_threshold_celsius", **HERE, threshold="shutdown")
CORE = selector("gpu_temperature_celsius", **HERE, sensor="gpu")
MEMORY = selector("gpu_temperature_celsius", **HERE, sensor="memory")

HOT = (
    Scenario(
        "healthy",
        {MARGIN: "30+0x100", SLOWDOWN: "87+0x100", CORE: "57+0x100", MEMORY: "86+0x100"},
        {122: [], 502: []},
    ),
    Scenario("just at the limit", {MARGIN: "5+0x100"}, {122: [], 502: []}),
    Scenario("just beyond the limit", {MARGIN: "4.99+0x100"}, {117: [], 122: [THIS], 502: [THIS]}),
    Scenario("slows down", {MARGIN: "-1+0x100"}, {122: [THIS]}),
    Scenario("an older card at the limit", {SLOWDOWN: "93+0x100", CORE: "88+0x100"}, {122: [], 502: []}),
    Scenario(
        "an older card beyond the limit",
        {SLOWDOWN: "93+0x100", SHUTDOWN: "98+0x100", CORE: "88.01+0x100"},
        {117: [], 122: [THIS]},
    ),
    Scenario(
        "the margin counts where there is one",
        {MARGIN: "20+0x100", SLOWDOWN: "87+0x100", CORE: "85+0x100"},
        {122: [], 502: []},
    ),
    Scenario("its temperature cannot be read", {SLOWDOWN: "93+0x100"}, {122: []}),
    Scenario("its limit cannot be read", {CORE: "120+0x100", SHUTDOWN: "98+0x100"}, {122: []}),
    Scenario(
        "gets hot, and cools down",
        {MARGIN: "20+0x11 2+0x35 20+0x200"},
        {177: [], 182: [THIS], 837: [THIS], 842: []},
    ),
    Scenario("hot for a minute now and then", {MARGIN: "2+0x11 20+0x5 2+0x11 20+0x100"}, {122: [], 202: []}),
    Scenario(
        "hot, and the exporter does not answer for a minute",
        {MARGIN: "2+0x30 stale _x11 2+0x100"},
        {152: [THIS], 162: [THIS], 212: [THIS], 222: [THIS], 342: [THIS]},
    ),
    Scenario(
        "one of two boxes, seen by two jobs",
        {
            MARGIN: "2+0x100",
            selector("gpu_temperature_margin_celsius", **TWICE): "2+0x100",
            selector("gpu_temperature_margin_celsius", **OTHER_BOX): "20+0x100",
        },
        {122: [THIS]},
    ),
)

FULL = (
    Scenario("healthy", {USED: "60+0x200", TOTAL: "80+0x200"}, {602: [], 802: []}),
    Scenario("just at the limit", {USED: "76+0x200", TOTAL: "80+0x200"}, {602: [], 802: []}),
    Scenario(
        "just beyond the limit",
        {
            USED: "76.1+0x200",
            TOTAL: "80+0x200",
            selector("gpu_memory_used_bytes", **TWICE): "76.1+0x200",
            selector("gpu_memory_total_bytes", **TWICE): "80+0x200",
            selector("gpu_memory_used_bytes", **OTHER_BOX): "1+0x200",
            selector("gpu_memory_total_bytes", **OTHER_BOX): "80+0x200",
        },
        {597: [], 602: [THIS], 802: [THIS]},
    ),
    Scenario(
        "full, then not",
        {USED: "80+0x131 10+0x200", TOTAL: "80+0x400"},
        {602: [THIS], 1257: [THIS], 1262: []},
    ),
    Scenario(
        "full, and the exporter does not answer for a minute",
        {USED: "80+0x131 stale _x11 80+0x200", TOTAL: "80+0x131 stale _x11 80+0x200"},
        {602: [THIS], 662: [THIS], 722: [THIS], 902: [THIS]},
    ),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {
    ("GPULost", "critical"): LOST,
    ("GPUXid", "critical"): xids(listed=79, unlisted=140, other=31),
    ("GPUXid", "warning"): xids(listed=63, unlisted=13, other=79),
    ("GPUECCUncorrectable", "critical"): memory_errors.UNCORRECTABLE,
    ("GPURowRemapPending", "warning"): memory_errors.PENDING,
    ("GPURowRemapFailed", "warning"): memory_errors.FAILED,
    ("GPURecoveryNeeded", "critical"): memory_errors.RECOVERY,
    ("GPURecoveryNeeded", "warning"): memory_errors.RECOVERY_LATER,
    ("GPUsMissing", "warning"): boxes.MISSING,
    ("GPUHot", "warning"): HOT,
    ("GPUThermalThrottle", "warning"): slowed.HEAT,
    ("GPUPowerBrake", "warning"): slowed.BRAKE,
    ("GPUMemoryHigh", "warning"): FULL,
    ("GPUIdleWhileRunning", "warning"): UNUSED,
    ("NVLinkErrors", "warning"): links.LINK_ERRORS,
    ("PCIeDegraded", "warning"): links.SLOW_LINK,
    ("FabricDown", "critical"): links.CUT_OFF,
}
