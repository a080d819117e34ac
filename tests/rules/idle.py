"""A run that should take a step while all GPUs are idle."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.rules.cards import HERE, NEIGHBOUR, TARGET_UP, TOTAL, USED
from tests.rules.series import EXPORTER, OTHER_EXPORTER, selector
from tests.rules.stack import MINUTE, Scenario

RUN = "ppo/gsm8k"
STEPPED = selector("rl_last_step_timestamp_seconds", run=RUN, **EXPORTER)
INTERVAL = selector("rl_step_interval_typical_seconds", run=RUN, **EXPORTER)
RUNNING = selector("rl_run_state", run=RUN, state="running", **EXPORTER)
FINISHED = selector("rl_run_state", run=RUN, state="finished", **EXPORTER)
STEP = selector("rl_step", run=RUN, **EXPORTER)
BUSY = selector("gpu_utilization_ratio", **HERE)
NEIGHBOUR_BUSY = selector("gpu_utilization_ratio", **NEIGHBOUR)
DCGM = {"job": "dcgm", "instance": "a:9400", "gpu": "0"}
DCGM_BUSY = selector("DCGM_FI_DEV_GPU_UTIL", **DCGM)
DCGM_USED = selector("DCGM_FI_DEV_FB_USED", **DCGM)
DCGM_FREE = selector("DCGM_FI_DEV_FB_FREE", **DCGM)
RECORDED = {"instance": HERE["instance"], "gpu": HERE["gpu"], "UUID": HERE["uuid"], "device": "nvidia3"}
RECORDED_BUSY = selector("DCGM_FI_DEV_GPU_UTIL", **RECORDED)
RECORDED_USED = selector("DCGM_FI_DEV_FB_USED", **RECORDED)

NEIGHBOUR_USED, NEIGHBOUR_TOTAL = (
    selector(f"gpu_memory_{which}_bytes", **NEIGHBOUR) for which in ("used", "total")
)
HOST = "086fb401f216-4026531836"


def _of_run(run: str, pid: int, target: Mapping[str, str] = EXPORTER, namespace: str = HOST) -> str:
    """A process of a run that has a GPU open."""
    return selector("rl_run_gpu_process_info", run=run, pid=str(pid), pid_namespace=namespace, **target)


def _on_gpu(pid: int, card: Mapping[str, str]) -> str:
    """A process that holds memory of a GPU."""
    return selector("gpu_process_memory_bytes", pid=str(pid), pid_namespace=HOST, name="python", **card)


LATE = {STEPPED: "0+0x300", INTERVAL: "30+0x300", RUNNING: "1+0x300", FINISHED: "0+0x300", STEP: "640+0x300"}
IN_USE = {USED: "9+0x300", TOTAL: "80+0x300"}
IDLE = {**LATE, **IN_USE, BUSY: "0+0x300", NEIGHBOUR_BUSY: "0.01+0x300"}
BY_DCGM = {**LATE, DCGM_BUSY: "4.98+0x300", DCGM_USED: "9+0x300", DCGM_FREE: "71+0x300"}
ITS_OWN = {_of_run(RUN, 100): "1+0x300", _on_gpu(100, HERE): "5e9+0x300"}
ANOTHERS = {_of_run("sft", 200): "1+0x300", _on_gpu(200, NEIGHBOUR): "5e9+0x300"}
NEIGHBOUR_IN_USE = {NEIGHBOUR_USED: "9+0x300", NEIGHBOUR_TOTAL: "80+0x300"}
OWN_DCGM_BUSY = selector("DCGM_FI_DEV_GPU_UTIL", **DCGM, UUID=HERE["uuid"])
OWN_BY_DCGM = {**LATE, **ITS_OWN, **IN_USE}
BESIDE = {**IDLE, **NEIGHBOUR_IN_USE, NEIGHBOUR_BUSY: "0.9+0x300"}
LEFT_ALONE = {602: [], 902: [], 1402: []}
SILENT = {602: []}
IT = {"run": RUN}

BY_PROCESSES = (
    Scenario("its own GPU is just not idle, by DCGM", {**OWN_BY_DCGM, OWN_DCGM_BUSY: "5.02+0x300"}, SILENT),
    Scenario("another run's GPU is busy", {**BESIDE, **ITS_OWN, **ANOTHERS}, {597: [], 602: [IT]}),
    Scenario(
        "another run's GPU is busy, and which are its own is not known", {**BESIDE, **ANOTHERS}, {602: [IT]}
    ),
    Scenario(
        "one of its two GPUs is busy",
        {**BESIDE, **ITS_OWN, _on_gpu(100, NEIGHBOUR): "5e9+0x300"},
        SILENT,
    ),
    Scenario(
        "it shares a busy GPU with another run",
        {**BESIDE, **ITS_OWN, **ANOTHERS, _on_gpu(100, NEIGHBOUR): "5e9+0x300"},
        SILENT,
    ),
    Scenario(
        "its GPU is busy, another run's idle", {**IDLE, BUSY: "0.9+0x300", **ITS_OWN, **ANOTHERS}, SILENT
    ),
    Scenario("waits for a GPU that no run is known to use", {**BESIDE, **ITS_OWN}, SILENT),
    Scenario(
        "a GPU that no run is known to use is busy, and hardly any of its memory in use",
        {**BESIDE, **ITS_OWN, NEIGHBOUR_USED: "8+0x300"},
        {602: [IT]},
    ),
    Scenario(
        "a GPU that no run is known to use is busy, and just enough of its memory in use",
        {**BESIDE, **ITS_OWN, NEIGHBOUR_USED: "8.01+0x300"},
        SILENT,
    ),
    Scenario(
        "only another run's GPU has memory in use: the run is elsewhere",
        {**BESIDE, USED: "8+0x300", **ANOTHERS},
        SILENT,
    ),
    Scenario(
        "a process of another PID namespace has the id of one on the busy GPU",
        {**BESIDE, _on_gpu(200, NEIGHBOUR): "5e9+0x300", _of_run("sft", 200, namespace="1-2"): "1+0x300"},
        SILENT,
    ),
    Scenario(
        "two run exporters name the run on the busy GPU differently",
        {**BESIDE, **ANOTHERS, _of_run("sft-2", 200, OTHER_EXPORTER): "1+0x300"},
        SILENT,
    ),
    Scenario(
        "has stopped, and its processes are there",
        {**IDLE, **ITS_OWN, RUNNING: "0+0x300"},
        SILENT,
    ),
    Scenario(
        "another run's GPU is busy, by DCGM as well",
        {
            **BESIDE,
            **ANOTHERS,
            selector("DCGM_FI_DEV_GPU_UTIL", **DCGM, UUID=NEIGHBOUR["uuid"]): "90+0x300",
            selector("DCGM_FI_DEV_FB_USED", **DCGM, UUID=NEIGHBOUR["uuid"]): "9+0x300",
            selector("DCGM_FI_DEV_FB_FREE", **DCGM, UUID=NEIGHBOUR["uuid"]): "71+0x300",
        },
        {602: [IT]},
    ),
)
"""What the processes of runs say about their GPUs."""

BY_TIME = (
    Scenario("all GPUs idle for ten minutes", IDLE, {597: [], 602: [IT], 1402: [IT]}),
    Scenario("one of two GPUs busy", {**IDLE, NEIGHBOUR_BUSY: "0.9+0x300"}, LEFT_ALONE),
    Scenario("as idle as the limit", {**IDLE, BUSY: "0.05+0x300"}, LEFT_ALONE),
    Scenario("just below the limit", {**IDLE, BUSY: "0.0499+0x300"}, {602: [IT]}),
    Scenario(
        "busy until a minute ago",
        {**IDLE, BUSY: "0.9+0x11 0+0x300"},
        {602: [], 647: [], 672: [IT]},
    ),
    Scenario(
        "busy for a moment every five minutes",
        {**IDLE, BUSY: " ".join(["0+0x59 1"] * 5)},
        LEFT_ALONE,
    ),
    Scenario(
        "watched for less than ten minutes",
        {**IDLE, BUSY: "_x60 0+0x300", NEIGHBOUR_BUSY: "_x60 0+0x300"},
        {597: [], 892: [], 907: [IT]},
    ),
    Scenario(
        "the step is as late as the limit, then later",
        {**IDLE, INTERVAL: "350+0x300"},
        {697: [], 702: [], 707: [IT]},
    ),
    Scenario("steps go on", {**IDLE, STEPPED: "0+5x300"}, LEFT_ALONE),
    Scenario("no usual interval yet", {**IDLE, INTERVAL: "_x300"}, LEFT_ALONE),
    Scenario("no step yet", {**IDLE, STEPPED: "_x300"}, LEFT_ALONE),
    Scenario("no memory in use: the run is elsewhere", {**IDLE, USED: "8+0x300"}, LEFT_ALONE),
    Scenario("hardly any memory in use", {**IDLE, USED: "8.01+0x300"}, {602: [IT]}),
    Scenario("no GPU", {**LATE, TARGET_UP: "1+0x300"}, LEFT_ALONE),
    Scenario("the run has stopped", {**IDLE, RUNNING: "0+0x300"}, LEFT_ALONE),
    Scenario("the run has finished", {**IDLE, FINISHED: "1+0x300"}, LEFT_ALONE),
    Scenario(
        "makes its step at last",
        {**IDLE, STEPPED: "0+0x130 1e4+0x300"},
        {602: [IT], 1252: [IT], 1262: []},
    ),
    Scenario(
        "the exporters do not answer for a minute",
        {
            name: values.replace("x300", "x130 stale _x11 " + values.split("+")[0] + "+0x150")
            for name, values in IDLE.items()
        },
        {602: [IT], 662: [IT], 722: [IT], 1302: [IT]},
    ),
    Scenario("by DCGM", BY_DCGM, {597: [], 602: [IT]}),
    Scenario(
        "by DCGM, busy until a minute ago",
        {**BY_DCGM, DCGM_BUSY: "90+0x11 0+0x300"},
        {602: [], 647: [], 672: [IT]},
    ),
    Scenario("by DCGM, as idle as the limit", {**BY_DCGM, DCGM_BUSY: "5+0x300"}, LEFT_ALONE),
    Scenario("by DCGM, just not idle", {**BY_DCGM, DCGM_BUSY: "5.02+0x300"}, LEFT_ALONE),
    Scenario(
        "by DCGM, no memory in use", {**BY_DCGM, DCGM_USED: "8+0x300", DCGM_FREE: "72+0x300"}, LEFT_ALONE
    ),
    Scenario(
        "by DCGM, hardly any in use", {**BY_DCGM, DCGM_USED: "8.01+0x300", DCGM_FREE: "72+0x300"}, {602: [IT]}
    ),
    Scenario(
        "by ours, and recorded under NVIDIA's names as well",
        {**IDLE, RECORDED_BUSY: "0+0x300", RECORDED_USED: "9000+0x300"},
        {597: [], 602: [IT]},
    ),
    Scenario("one exporter idle, the other busy", {**IDLE, **BY_DCGM, DCGM_BUSY: "90+0x300"}, LEFT_ALONE),
    Scenario(
        "seen by two run exporters",
        {**IDLE, **{name.replace("a:9410", "b:9410"): values for name, values in LATE.items()}},
        {602: [IT]},
    ),
    Scenario(
        "its own GPU was busy until a minute ago",
        {**IDLE, **ITS_OWN, BUSY: "0.9+0x11 0+0x300"},
        {602: [], 647: [], 672: [IT]},
    ),
    Scenario(
        "its own GPU was busy until a minute ago, by DCGM",
        {**OWN_BY_DCGM, OWN_DCGM_BUSY: "90+0x11 4.98+0x300"},
        {602: [], 647: [], 672: [IT]},
    ),
)

_CONSTANT = re.compile(r"[\d.e]+\+0x300|_x300")
_TEN_MINUTES = {597, 602, *LEFT_ALONE}


def _seldom(scenario: Scenario) -> Scenario:
    """A sample and an evaluation a minute where nothing changes: ten times as fast as one in 5 s."""
    constant = all(_CONSTANT.fullmatch(values) for values in scenario.series.values())
    return (
        scenario._replace(interval=MINUTE)
        if constant and scenario.alerts.keys() <= _TEN_MINUTES
        else scenario
    )


UNUSED = tuple(map(_seldom, (*BY_TIME, *BY_PROCESSES)))
