"""The cases of every rule about nodes with agents, their network, and GPUs among peers."""

from __future__ import annotations

from collections.abc import Mapping

from tests.rules.cards import alert
from tests.rules.series import EXPORTER, selector
from tests.rules.stack import Labels, Scenario, by_the_minute

NODE, OTHER_NODE = "node-7", "node-8"
LOST, OTHER_LOST = {"node": NODE}, {"node": OTHER_NODE}
RUN, OTHER_RUN = "ppo", "sft"
ALWAYS = "1+0x300"


def of_hub(metric: str, node: str = NODE) -> str:
    """A series that the hub records."""
    return selector(f"stepwatch_agent_{metric}", node=node)


RECEIVER_UP = selector("up", job="receiver", instance="hub:9415")


def of_node(metric: str, node: str = NODE, job: str = "gpu", port: int = 9411, **more: str) -> str:
    """A series that an agent scraped."""
    return selector(metric, job=job, instance=f"{node}:{port}", node=node, **more)


def state(run: str = RUN, target: Mapping[str, str] = EXPORTER) -> str:
    return selector("rl_run_state", run=run, state="running", **target)


def uses(run: str = RUN, node: str = NODE, uuid: str = "GPU-1") -> str:
    return selector("rl_run_gpu", run=run, instance=f"{node}:9411", gpu="0", uuid=uuid, by="process")


def _ends(at: int, value: str = "1") -> str:
    """A series whose last sample is that of a minute."""
    return f"{value}+0x{at} _x300"


def node(used: float, until: int = 300, name: str = NODE, memory: bool = True) -> dict[str, str]:
    """A node whose data stop after a minute, with this share of its memory in use."""
    last = f"0+60x{until} {60 * until}+0x300"
    gpu = {"gpu": "0", "uuid": f"GPU-{name}"}
    held = {
        of_node("gpu_memory_used_bytes", name, **gpu): _ends(until, str(round(1000 * used))),
        of_node("gpu_memory_total_bytes", name, **gpu): _ends(until, "1000"),
    }
    return {
        of_hub("last_write_timestamp_seconds", name): last,
        RECEIVER_UP: ALWAYS,
        of_node("up", name, role="gpu"): _ends(until),
        **(held if memory else {}),
    }


ALIVE = {state(): ALWAYS}
LOSES = (
    by_the_minute("healthy", {**node(0.9), **ALIVE, uses(): ALWAYS}, {5: [], 90: []}),
    by_the_minute(
        "is gone while its run goes on, and is forgotten after an hour",
        {**node(0.9, 10), **node(0.9, name=OTHER_NODE), **ALIVE, uses(): _ends(11)},
        {12: [], 13: [], 14: [LOST], 40: [LOST], 69: [LOST], 73: []},
    ),
    by_the_minute(
        "is gone, and it is not known which run uses it",
        {**node(0.5, 10), **ALIVE},
        {13: [], 14: [LOST]},
    ),
    by_the_minute(
        "is gone with the run exporter that knew its run",
        {**node(0.9, 10), state(target={"job": "runs", "instance": f"{NODE}:9410", "node": NODE}): _ends(10)},
        {13: [], 14: [LOST], 60: [LOST], 73: []},
    ),
    by_the_minute(
        "is gone, and has no GPUs",
        {**node(0, 10, memory=False), **ALIVE},
        {13: [], 14: [LOST]},
    ),
    by_the_minute(
        "two are gone",
        {**node(0.9, 10), **node(0.9, 10, OTHER_NODE), **ALIVE},
        {14: [LOST, OTHER_LOST]},
    ),
    by_the_minute(
        "comes back",
        {
            **node(0.9),
            **ALIVE,
            of_hub("last_write_timestamp_seconds"): "0+60x10 600+0x10 1320+60x100",
        },
        {14: [LOST], 21: [LOST], 22: [], 60: []},
    ),
    by_the_minute(
        "just held memory, and just not",
        {**node(0.101, 10), **node(0.1, 10, OTHER_NODE), **ALIVE},
        {14: [LOST], 40: [LOST]},
    ),
    by_the_minute(
        "is shut down after its run has ended; others go on",
        {**node(0.01, 10), **ALIVE, state(OTHER_RUN): "1+0x6 0+0x300", uses(OTHER_RUN): _ends(8)},
        {14: [], 40: [], 69: [], 71: [], 72: [], 73: [], 100: []},
    ),
    by_the_minute(
        "is shut down after its run has ended, and has reported no memory",
        {
            **node(0, 10, memory=False),
            **ALIVE,
            state(OTHER_RUN): "1+0x6 0+0x300",
            uses(OTHER_RUN): _ends(8),
        },
        {14: [], 40: [], 65: []},
    ),
    by_the_minute(
        "its run holds no memory of its own, but is known to use it",
        {**node(0.01, 10), **ALIVE, uses(): _ends(11)},
        {14: [LOST]},
    ),
    by_the_minute(
        "is shut down while no run is running",
        {**node(0.9, 10), state(): "1+0x5 0+0x300", uses(): _ends(11)},
        {14: [], 40: []},
    ),
    by_the_minute(
        "the receiver does not answer, and no agent can write",
        {**node(0.9, 10), **ALIVE, RECEIVER_UP: "1+0x9 0+0x300"},
        {14: [], 40: []},
    ),
    by_the_minute(
        "the hub's clock says it is silent for a moment",
        {**node(0.9), **ALIVE, of_hub("last_write_timestamp_seconds"): "0+60x10 600+0x2 780+60x100"},
        {13: [], 14: [], 30: []},
    ),
    by_the_minute(
        "the hub forgets when the node wrote",
        {**node(0.9, 10), **ALIVE, of_hub("last_write_timestamp_seconds"): "0+60x10 600+0x9 stale"},
        {14: [LOST], 40: [LOST]},
    ),
    by_the_minute(
        "just silent",
        {**node(0.9), **ALIVE, of_hub("last_write_timestamp_seconds"): "-120.5+60x300"},
        {5: [LOST]},
    ),
    by_the_minute(
        "just not silent",
        {**node(0.9), **ALIVE, of_hub("last_write_timestamp_seconds"): "-120+60x300"},
        {5: []},
    ),
    by_the_minute(
        "memory was given back before it is shut down; another run has begun",
        {
            **node(0.9, 10),
            of_node("gpu_memory_used_bytes", gpu="0", uuid=f"GPU-{NODE}"): "900+0x5 10+0x4 _x300",
            state(): "0+0x2 1+0x300",
        },
        {14: [], 40: []},
    ),
    by_the_minute(
        "its run has begun a while ago",
        {
            **node(0.9, 10),
            of_node("gpu_memory_used_bytes", gpu="0", uuid=f"GPU-{NODE}"): "10+0x3 900+0x6 _x300",
            state(): "0+0x2 1+0x300",
        },
        {14: [LOST], 40: [LOST]},
    ),
    by_the_minute(
        "with the run exporter, of a run that has begun a while ago and is known to use it",
        {**node(0.01, 10), state(): "0+0x2 1+0x8 _x300", uses(): _ends(11)},
        {14: [LOST], 40: [LOST]},
    ),
)

LAST_WRITE = of_hub("last_write_timestamp_seconds")
WRITES = {LAST_WRITE: "0+5x400"}
DELAY = of_hub("delay_seconds")


def _late(delay: str, **more: str) -> dict[str, str]:
    return {**WRITES, DELAY: delay, **more}


GONE_SILENT = {of_hub("last_write_timestamp_seconds"): "0+5x20 100+0x400"}

LATE = (
    Scenario("healthy", _late("2+0x400"), {902: [], 1602: []}),
    Scenario("later and later", _late("0+5x400"), {902: [], 957: [], 967: [LOST], 1602: [LOST]}),
    Scenario("makes up for it, slowly", _late("400-0.5x400"), {697: [], 702: [LOST], 1602: [LOST]}),
    Scenario(
        "makes up for an outage of five minutes", _late("300-5x55 20+0x400"), {302: [], 602: [], 902: []}
    ),
    Scenario("up and down, once within a minute", _late(" ".join(["70+2x50 60"] * 8)), {902: [], 1602: []}),
    Scenario(
        "just above a minute at all times",
        _late(" ".join(["60.3+1x20"] * 19)),
        {647: [], 652: [LOST], 1602: [LOST]},
    ),
    Scenario("by the same time: its clock", _late("90+0x400"), {902: [], 1602: []}),
    Scenario("by nearly the same time: its clock", _late(" ".join(["90 99.9"] * 200)), {902: [], 1602: []}),
    Scenario("by not nearly the same time", _late(" ".join(["90 100"] * 200)), {902: [LOST], 1602: [LOST]}),
    Scenario("has written within a minute", _late("0+5x400", **{LAST_WRITE: "-59.9+5x400"}), {967: [LOST]}),
    Scenario("has not written for a minute", _late("0+5x400", **{LAST_WRITE: "-60+5x400"}), {967: []}),
    Scenario("stops in the midst of it", {**_late("0+5x400"), **GONE_SILENT}, {902: [], 1602: []}),
    Scenario(
        "one of two",
        {
            **_late("2+0x400"),
            of_hub("delay_seconds", OTHER_NODE): "0+5x400",
            of_hub("last_write_timestamp_seconds", OTHER_NODE): "0+5x400",
        },
        {967: [OTHER_LOST]},
    ),
)

AGENT = {"job": "agent", "instance": NODE}
SKEWS = (
    Scenario("an agent's clock is behind", _late("30.2+0x400"), {297: [], 302: [AGENT], 902: [AGENT]}),
    Scenario("an agent's clock is just not behind enough", _late("30+0x400"), {602: [], 902: []}),
    Scenario("an agent's clock is ahead", _late("-5.04+0x400"), {297: [], 302: [AGENT], 902: [AGENT]}),
    Scenario("an agent's clock is just not ahead enough", _late("-5+0x400"), {602: [], 902: []}),
    Scenario(
        "an agent's clock is ahead, and its data late at times",
        _late(" ".join(["-9+0x20 3"] * 18)),
        {902: []},
    ),
    Scenario(
        "an agent's clock is behind, and its data come unevenly",
        _late(" ".join(["40 49.9"] * 200)),
        {902: [AGENT]},
    ),
    *(
        case
        for how, late in (("behind", "90+0x400"), ("ahead", "-90+0x400"))
        for case in (
            Scenario(
                f"an agent whose clock is {how} has written within a minute",
                _late(late, **{LAST_WRITE: "-59.9+5x400"}),
                {302: [AGENT]},
            ),
            Scenario(
                f"an agent whose clock is {how} has not written for a minute",
                _late(late, **{LAST_WRITE: "-60+5x400"}),
                {302: [], 602: []},
            ),
        )
    ),
    Scenario("an agent is later and later", _late("40+1x400"), {602: [], 902: []}),
    Scenario("an agent makes up for an outage", _late("400-1x300"), {602: [], 902: []}),
    Scenario("an agent has a backlog", _late(" ".join(["40 50"] * 200)), {602: [], 902: []}),
    Scenario("an agent's delay was short once in 5 minutes", _late(" ".join(["31+0x50 29"] * 8)), {902: []}),
    Scenario(
        "an agent whose clock was off does not write",
        {**_late("90+0x400"), **GONE_SILENT},
        {602: [], 902: []},
    ),
    Scenario(
        "an agent whose clock is ahead does not write",
        {**_late("-90+0x400"), **GONE_SILENT},
        {602: [], 902: []},
    ),
)
"""Of ClockSkew, on agents; the others are in ``upkeep``."""


DAY = 86400
CERTIFICATE = selector("stepwatch_agent_certificate_expiry_timestamp_seconds", **EXPORTER)
EXPIRES = (
    by_the_minute("healthy", {CERTIFICATE: f"{90 * DAY}+0x100"}, {5: [], 60: []}),
    by_the_minute(
        "in just two weeks", {CERTIFICATE: f"{14 * DAY + 1800}+0x100"}, {29: [], 31: [], 32: [EXPORTER]}
    ),
    by_the_minute(
        "is renewed",
        {CERTIFICATE: f"{DAY}+0x10 {90 * DAY}+0x100"},
        {0: [], 1: [EXPORTER], 10: [EXPORTER], 11: []},
    ),
    by_the_minute("has expired", {CERTIFICATE: f"{-DAY}+0x100"}, {1: [EXPORTER]}),
)

PORT = {"instance": f"{NODE}:9100", "device": "mlx5_0", "port": "1"}
OTHER_PORT = {**PORT, "device": "mlx5_1"}


def port(metric: str, where: Labels = PORT) -> str:
    return selector(f"node_infiniband_{metric}", job="node", node=NODE, **where)


GBIT = 125_000_000
ACTIVE = {port("state_id"): "4+0x300", port("rate_bytes_per_second"): f"{400 * GBIT}+0x300"}
COUNTERS = (
    "link_error_recovery",
    "port_errors_received",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)

LINKS = (
    by_the_minute(
        "healthy",
        {
            **ACTIVE,
            port("link_downed_total"): "1+0x300",
            port("symbol_error_total"): "5+1x300",
            **{port(f"{each}_total"): "3+0x300" for each in COUNTERS},
        },
        {5: [], 90: []},
    ),
    by_the_minute(
        "a link goes down once",
        {
            **ACTIVE,
            port("link_downed_total"): "1+0x9 2+0x300",
            port("link_downed_total", OTHER_PORT): "0+0x300",
        },
        {10: [], 11: [PORT], 68: [PORT], 70: [], 90: []},
    ),
    by_the_minute(
        "both ports",
        {port("link_downed_total", each): "1+0x9 2+0x300" for each in (PORT, OTHER_PORT)},
        {11: [PORT, OTHER_PORT]},
    ),
    by_the_minute("the driver is reloaded", {port("link_downed_total"): "7+0x9 0+0x300"}, {11: [], 40: []}),
    by_the_minute(
        "just too many symbol errors in an hour",
        {port("symbol_error_total"): "0+0x9 201+0x300"},
        {10: [], 11: [PORT], 68: [PORT], 70: []},
    ),
    by_the_minute("just not too many", {port("symbol_error_total"): "0+0x9 200+0x300"}, {11: [], 40: []}),
    *(
        case
        for each in COUNTERS
        for case in (
            by_the_minute(
                f"just too many: {each}",
                {port(f"{each}_total"): "2+0x9 8+0x300"},
                {10: [], 11: [PORT], 68: [PORT], 70: []},
            ),
            by_the_minute(
                f"just not too many: {each}", {port(f"{each}_total"): "2+0x9 7+0x300"}, {11: [], 40: []}
            ),
        )
    ),
    by_the_minute(
        "goes down and stays down for a day",
        {port("state_id"): "4+0x9 1+0x1500"},
        {10: [], 11: [PORT], 600: [PORT], 1448: [PORT], 1450: []},
    ),
    by_the_minute(
        "waits to become active, and does", {port("state_id"): "4+0x9 2 4+0x300"}, {10: [], 11: [], 12: []}
    ),
    by_the_minute("was deferred for a moment: active", {port("state_id"): "4+0x9 5+0x300"}, {11: [], 40: []}),
    by_the_minute("armed only", {port("state_id"): "4+0x9 3+0x300"}, {11: [PORT]}),
    by_the_minute("was never up", {port("state_id"): "1+0x300"}, {11: [], 40: []}),
    by_the_minute("was never more than armed", {port("state_id"): "3+0x9 2+0x300"}, {11: [], 40: []}),
    by_the_minute(
        "comes up at half its rate, for a day",
        {port("rate_bytes_per_second"): f"{400 * GBIT}+0x9 {200 * GBIT}+0x1500"},
        {10: [], 11: [PORT], 1448: [PORT], 1450: []},
    ),
)


def pace(number: int, run: str = RUN, node: str = NODE, model: str = "H100", **more: str) -> str:
    labels = {"run": run} if run else {}
    card = {"instance": f"{node}:9411", "gpu": str(number), "uuid": f"GPU-{node}-{number}"}
    return selector("rl_gpu_clock_ratio", **labels, **card, model=model, **more)


def _paces(*values: str, **more: str) -> dict[str, str]:
    return {pace(number, **more): value for number, value in enumerate(values)}


def _behind(number: int, node: str = NODE) -> Labels:
    return alert({"instance": f"{node}:9411", "gpu": str(number), "uuid": f"GPU-{node}-{number}"})


FULL = "0.98+0x100"
BEHIND = (
    by_the_minute("healthy", _paces(FULL, "0.95+0x100", "1+0x100", "0.93+0x100"), {11: [], 60: []}),
    by_the_minute(
        "one of four, from a minute on until it recovers",
        _paces(FULL, FULL, FULL, "0.98+0x9 0.7+0x30 0.98+0x60"),
        {19: [], 20: [_behind(3)], 40: [_behind(3)], 47: [_behind(3)], 60: []},
    ),
    by_the_minute("one of three: too few to say", _paces(FULL, FULL, "0.5+0x100"), {11: [], 60: []}),
    by_the_minute("just at the limit", _paces(*["0.8+0x100"] * 3, "0.6801+0x100"), {11: [], 60: []}),
    by_the_minute("at the limit", _paces(*["1+0x100"] * 3, "0.85+0x100"), {11: [], 60: []}),
    by_the_minute("just below it", _paces(*["0.8+0x100"] * 3, "0.679+0x100"), {9: [], 10: [_behind(3)]}),
    by_the_minute(
        "for nine minutes", _paces(FULL, FULL, FULL, "0.5+0x8 0.98+0x100"), {9: [], 10: [], 20: []}
    ),
    by_the_minute(
        "a whole node of three",
        {
            **_paces(*["0.6+0x100"] * 4),
            **{pace(n, node=each): FULL for n in range(4) for each in (OTHER_NODE, "node-9")},
        },
        {10: [_behind(n) for n in range(4)]},
    ),
    by_the_minute(
        "half of them: none is behind",
        _paces("0.6+0x100", "0.6+0x100", "0.6+0x100", FULL),
        {11: [], 60: []},
    ),
    by_the_minute(
        "another model has other clocks",
        {
            **_paces(FULL, FULL, FULL, FULL),
            **{pace(n, node=OTHER_NODE, model="L40S"): "0.7+0x100" for n in range(3)},
        },
        {11: [], 60: []},
    ),
    by_the_minute(
        "another run has other clocks",
        {**_paces(FULL, FULL, FULL, FULL), **{pace(n, OTHER_RUN, OTHER_NODE): "0.7+0x100" for n in range(4)}},
        {11: [], 60: []},
    ),
    by_the_minute(
        "another machine has other clocks, and runs are not known",
        {
            pace(n, "", each, peers=f"{each}:9411"): value
            for n in range(4)
            for each, value in ((NODE, FULL), (OTHER_NODE, "0.7+0x100"))
        },
        {11: [], 60: []},
    ),
    by_the_minute(
        "of two runs on the same GPUs, one has others besides: with those it is not behind",
        {
            **{pace(n, each): "0.7+0x100" if n == 3 else FULL for n in range(4) for each in (RUN, OTHER_RUN)},
            **{pace(n, OTHER_RUN, OTHER_NODE): "0.7+0x100" for n in range(5)},
        },
        {11: [], 60: []},
    ),
    by_the_minute(
        "validation: no one works", _paces(*["0.98+0x5 stale"] * 3, "0.7+0x5 stale"), {11: [], 40: []}
    ),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {
    ("NodeLost", "critical"): LOSES,
    ("Straggler", "warning"): BEHIND,
    ("InfiniBandErrors", "warning"): LINKS,
    ("AgentBacklog", "warning"): LATE,
    ("CertificateExpires", "warning"): EXPIRES,
}
