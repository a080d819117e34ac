"""The cases of every rule about Ray: series over time, and what fires when."""

from __future__ import annotations

from tests.rules.series import selector
from tests.rules.servers import GONE, LONG, OTHER_RUN, RUN, leaves_with_its_agent
from tests.rules.stack import Labels, Scenario, by_the_minute

NODE = {"job": "ray", "instance": "c:44217"}
OTHER_NODE = {"job": "ray", "instance": "d:44217"}
DASHBOARD = {"job": "ray", "instance": "c:44227"}
LOST, OTHER_LOST = {"job": "ray", "node": "c"}, {"job": "ray", "node": "d"}
"""A node, whatever its ports."""


def node_up(labels: Labels = NODE, role: str = "other") -> str:
    """Whether a part of Ray answers; ``role`` is ``ray`` if discovery found it."""
    return selector("up", **labels, role=role)


def killed(kind: str, name: str, labels: Labels = NODE) -> str:
    """Ray's count of workers that it killed for memory."""
    kind = f"MemoryManager.{kind}Eviction.Total"
    return selector("ray_memory_manager_worker_eviction_total", **labels, Type=kind, Name=name)


WORKER, TASK = killed("Actor", "WorkerDict"), killed("Task", "score")
THERE = {node_up(): LONG, node_up(OTHER_NODE): LONG}
AWAY_FOR_FIVE_MINUTES = {node_up(): "1+0x30 0+0x4 1+0x200"}

KILLS = (
    by_the_minute("none", {**THERE, WORKER: "_x200"}, {1: [], 60: []}),
    by_the_minute(
        "the first, which brings the counter",
        {**THERE, WORKER: "_x12 1+0x200"},
        {11: [], 12: [NODE], 70: [NODE], 80: [NODE], 83: [], 150: []},
    ),
    by_the_minute(
        "a second, long after",
        {**THERE, WORKER: "_x12 1+0x87 2+0x100"},
        {99: [], 100: [NODE], 158: [NODE], 171: []},
    ),
    by_the_minute(
        "an actor and a task, on one node of two, are one alert",
        {**THERE, WORKER: "_x12 1+0x90", TASK: "_x14 1+0x90", killed("Task", "score", OTHER_NODE): "3+0x200"},
        {14: [NODE], 70: [NODE]},
    ),
    by_the_minute(
        "on both nodes",
        {**THERE, WORKER: "_x12 1+0x90", killed("Actor", "WorkerDict", OTHER_NODE): "_x12 1+0x90"},
        {12: [NODE, OTHER_NODE]},
    ),
    by_the_minute("the counter comes before the first", {**THERE, WORKER: "_x12 0+0x90"}, {12: [], 60: []}),
    by_the_minute(
        "before Prometheus began to read", {**THERE, WORKER: "2+0x200"}, {0: [], 1: [], 59: [], 125: []}
    ),
    by_the_minute(
        "Ray is restarted", {**THERE, WORKER: "2+0x89 stale _x2 0+0x100"}, {89: [], 94: [], 150: []}
    ),
    by_the_minute(
        "long ago, and the node does not answer for some minutes",
        {**AWAY_FOR_FIVE_MINUTES, WORKER: "2+0x30 stale _x4 2+0x200"},
        {30: [], 32: [], 34: [], 36: [], 90: [], 93: [], 95: [], 155: []},
    ),
    by_the_minute(
        "just now, and the node does not answer for some minutes",
        {**AWAY_FOR_FIVE_MINUTES, WORKER: "_x12 1+0x18 stale _x4 1+0x200"},
        {at: [NODE] for at in (30, 31, 35, 36, 70)},
    ),
    by_the_minute(
        "long ago, and the counter is missing from some pages",
        {**THERE, WORKER: "2+0x79 stale _x2 2+0x200"},
        {80: [], 83: [], 84: [], 120: [], 139: [], 140: [], 141: [], 142: [], 143: [], 160: []},
    ),
    by_the_minute(
        "again long after it was gone",
        {**THERE, WORKER: "1+0x5 stale _x120 1+0x30"},
        {5: [], 7: [], 126: [], 127: [NODE], 140: [NODE]},
    ),
)

MEMORY = selector("ray_node_mem_total", **NODE, ip="10.0.0.3")

LEAVES = (
    by_the_minute("healthy", {**THERE, MEMORY: "1e12+0x100", RUN: LONG}, {5: [], 90: []}),
    by_the_minute(
        "leaves the list, and is forgotten after an hour",
        {node_up(): GONE, node_up(OTHER_NODE): LONG, MEMORY: "1e12+0x9 stale", RUN: LONG},
        {11: [], 12: [LOST], 67: [LOST], 78: [LOST], 81: [], 140: []},
    ),
    by_the_minute(
        "one of a job in config.yaml does not answer: TargetDown's",
        {node_up(): "1+0x9 0+0x100", MEMORY: "1e12+0x9 stale", RUN: LONG},
        {12: [], 60: []},
    ),
    by_the_minute(
        "one of two that were found does not answer",
        {node_up(role="ray"): "1+0x9 0+0x20 1+0x60", node_up(OTHER_NODE, role="ray"): LONG, RUN: LONG},
        {11: [], 12: [LOST], 29: [LOST], 45: []},
    ),
    by_the_minute(
        "all that were found end with their run",
        {node_up(role="ray"): "1+0x9 0+0x60", RUN: "1+0x9 0+0x60"},
        {12: [], 40: []},
    ),
    by_the_minute(
        "one that was found does not answer, and the runs are never heard of again",
        {node_up(role="ray"): "0+0x60", RUN: "1+0x5 stale"},
        {2: [LOST], 15: [LOST], 27: []},
    ),
    by_the_minute(
        "one that was found does not answer when a run begins",
        {node_up(role="ray"): "0+0x60", RUN: "0+0x5 1+0x60"},
        {7: [], 8: [LOST]},
    ),
    by_the_minute(
        "one that was found does not answer, and the runs are not scraped for a minute",
        {node_up(role="ray"): "0+0x60", RUN: "1 stale 1+0x60"},
        {1: [], 2: [LOST]},
    ),
    by_the_minute(
        "the head, of which three ports are listed, is one node",
        {
            **{
                node_up({**NODE, "instance": f"c:{port}"}, role="ray"): "1+0x9 0+0x60"
                for port in (8080, 44217, 44227)
            },
            node_up(OTHER_NODE, role="ray"): LONG,
            RUN: LONG,
        },
        {11: [], 12: [LOST], 40: [LOST]},
    ),
    by_the_minute(
        "only the dashboard of a node that was found does not answer",
        {node_up(role="ray"): LONG, node_up(DASHBOARD, role="ray"): "1+0x9 0+0x60", RUN: LONG},
        {11: [], 12: [LOST]},
    ),
    by_the_minute(
        "a node is listed with another port",
        {node_up(): GONE, node_up(DASHBOARD): "_x9 1+0x100", MEMORY: "1e12+0x9 stale", RUN: LONG},
        {12: [], 60: []},
    ),
    by_the_minute("another target leaves", {node_up(): GONE, RUN: LONG}, {12: [], 60: []}),
    by_the_minute(
        "with its run", {node_up(): GONE, MEMORY: "1e12+0x9 stale", RUN: "1+0x9 0+0x100"}, {12: [], 60: []}
    ),
    by_the_minute(
        "with no run", {node_up(): GONE, MEMORY: "1e12+0x9 stale", RUN: "0+0x100"}, {12: [], 60: []}
    ),
    by_the_minute(
        "when another run has ended",
        {node_up(): "1+0x29 stale", MEMORY: "1e12+0x29 stale", RUN: LONG, OTHER_RUN: "1+0x5 0+0x300"},
        {36: [], 67: [], 75: [], 88: []},
    ),
    by_the_minute(
        "long after another run has ended",
        {node_up(): "1+0x199 stale", MEMORY: "1e12+0x199 stale", RUN: LONG, OTHER_RUN: "1+0x5 0+0x300"},
        {201: [], 202: [LOST]},
    ),
    by_the_minute(
        "and the runs are never heard of again",
        {node_up(): GONE, MEMORY: "1e12+0x9 stale", RUN: "1+0x15 stale"},
        {12: [LOST], 24: [LOST], 28: []},
    ),
    *leaves_with_its_agent(
        {
            selector(metric, job="ray", instance="node-7:44217", node="node-7"): value
            for metric, value in (("up", GONE), ("ray_node_mem_total", "1e12+0x9 stale"))
        },
        {"job": "ray", "node": "node-7"},
    ),
)

GB = 1 << 30
SPILLED = selector("ray_object_store_memory", **NODE, Location="SPILLED", ObjectState="")
IN_MEMORY = selector("ray_object_store_memory", **NODE, Location="MMAP_SHM", ObjectState="SEALED")
SPILLED_BY_OTHER = SPILLED.replace("c:44217", "d:44217")

SPILLS = (
    by_the_minute("healthy", {SPILLED: "0+0x60", IN_MEMORY: f"{300 * GB}+0x60"}, {5: [], 50: []}),
    by_the_minute(
        "until a step is over",
        {SPILLED: f"0+0x9 {10.05 * GB:.0f}+0x9 0+0x60", SPILLED_BY_OTHER: f"{GB}+0x100"},
        {14: [], 15: [NODE], 29: [NODE], 31: []},
    ),
    by_the_minute("just the limit", {SPILLED: f"{10 * GB}+0x60"}, {6: [], 50: []}),
    by_the_minute(
        "for four minutes of each step",
        {SPILLED: " ".join([f"{20 * GB}+0x3 0+0x9"] * 4)},
        {6: [], 20: [], 50: []},
    ),
    by_the_minute(
        "and is not scraped for two minutes",
        {SPILLED: f"{20 * GB}+0x9 stale _x1 {20 * GB}+0x60"},
        {9: [NODE], 11: [NODE], 40: [NODE]},
    ),
)


def _disk(used: float, labels: Labels = NODE) -> dict[str, str]:
    """A disk of 1000 bytes."""
    values = {"usage": used, "free": 1000 - used}
    return {
        selector(f"ray_node_disk_{what}", **labels, ip="10.0.0.3"): f"{value}+0x30"
        for what, value in values.items()
    }


FULL = (
    by_the_minute("just the limit", _disk(900), {6: [], 29: []}),
    by_the_minute(
        "just beyond the limit, one node of two",
        {**_disk(905), **_disk(100, OTHER_NODE)},
        {4: [], 5: [NODE], 29: [NODE]},
    ),
    by_the_minute(
        "until files are deleted",
        {
            selector("ray_node_disk_usage", **NODE): "990+0x20 500+0x60",
            selector("ray_node_disk_free", **NODE): "10+0x20 500+0x60",
        },
        {20: [NODE], 30: [NODE], 32: []},
    ),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {
    ("RayWorkerOOM", "warning"): KILLS,
    ("RayNodeLost", "warning"): LEAVES,
    ("RayObjectStoreSpilling", "warning"): SPILLS,
    ("RayDiskLow", "warning"): FULL,
}
