"""The cases of the rule about rollout servers that are gone: series over time, and what fires when."""

from __future__ import annotations

from tests.rules.series import EXPORTER, OTHER_EXPORTER, selector
from tests.rules.stack import DOWN, GOES_DOWN, UP, Labels, Scenario, by_the_minute

SERVER = {"job": "vllm", "instance": "c:8000"}
OTHER_SERVER = {"job": "vllm", "instance": "d:8000"}


def server_up(labels: Labels = SERVER) -> str:
    return selector("up", **labels, role="rollout")


def running(run: str, exporter: Labels = EXPORTER) -> str:
    return selector("rl_run_state", run=run, state="running", **exporter)


RUN, OTHER_RUN = running("ppo/gsm8k"), running("ppo/math")
LONG = "1+0x300"
GONE = "1+0x9 stale"
"""A sample a minute: gone from the tenth minute on."""

ON_NODE = {"job": "vllm", "instance": "node-7:8000"}
NODE_SERVER = selector("up", **ON_NODE, node="node-7", role="rollout")
WRITTEN = selector("stepwatch_agent_last_write_timestamp_seconds", node="node-7")


def leaves_with_its_agent(up: dict[str, str], found: Labels) -> tuple[Scenario, ...]:
    """An agent that is silent takes its targets along; one that writes has lost them."""
    there = {RUN: LONG, **up}
    return (
        by_the_minute(
            "its agent is silent, and the hub starts again",
            {**there, WRITTEN: "0+60x9 540+0x3 stale"},
            {16: [], 30: [], 60: [], 68: []},
        ),
        by_the_minute("its agent goes on", {**there, WRITTEN: "-60+60x300"}, {16: [found], 30: [found]}),
        by_the_minute("its agent is just silent", {**there, WRITTEN: "-60.4+60x300"}, {16: [], 30: []}),
        by_the_minute(
            "another agent is silent",
            {**there, WRITTEN: "0+60x300", WRITTEN.replace("node-7", "node-8"): "0+0x300"},
            {16: [found]},
        ),
    )


GOES = (
    Scenario("healthy", {server_up(): UP, RUN: UP}, {302: [], 602: []}),
    Scenario(
        "does not answer, while a run is running",
        {server_up(): DOWN, server_up(OTHER_SERVER): UP, RUN: UP, OTHER_RUN: DOWN},
        {297: [], 302: [SERVER]},
    ),
    Scenario(
        "does not answer when a run begins",
        {server_up(): DOWN, RUN: "0+0x11 1+0x200"},
        {357: [], 362: [SERVER]},
    ),
    Scenario("ends with its run", {server_up(): GOES_DOWN, RUN: GOES_DOWN}, {362: [], 602: []}),
    Scenario(
        "does not answer, and the runs are never heard of again",
        {server_up(): "0+0x400", RUN: "1+0x11 stale"},
        {302: [SERVER], 652: [SERVER], 1252: [SERVER], 1267: []},
    ),
    Scenario("does not answer after its run", {server_up(): DOWN, RUN: DOWN}, {602: []}),
    Scenario("does not answer, and no run is known", {server_up(): DOWN}, {602: []}),
    Scenario(
        "loads its model for four minutes", {server_up(): "0+0x48 1+0x100", RUN: UP}, {242: [], 602: []}
    ),
    Scenario(
        "does not answer, and the runs are not scraped for a minute",
        {server_up(): DOWN, RUN: "1+0x80 stale _x11 1+0x100"},
        {302: [SERVER], 412: [SERVER], 457: [SERVER], 472: [SERVER]},
    ),
    by_the_minute(
        "leaves the list, and is forgotten after an hour",
        {server_up(): GONE, server_up(OTHER_SERVER): LONG, RUN: LONG},
        {10: [], 14: [], 15: [SERVER], 67: [SERVER], 78: [SERVER], 81: [], 140: []},
    ),
    by_the_minute(
        "answers again in time", {server_up(): "1+0x9 stale _x2 1+0x90", RUN: LONG}, {16: [], 30: []}
    ),
    by_the_minute(
        "does not answer, then leaves the list",
        {server_up(): "1+0x5 0+0x1 stale", RUN: LONG},
        {10: [], 11: [SERVER], 40: [SERVER]},
    ),
    by_the_minute(
        "never answered, and leaves the list", {server_up(): "0+0x3 stale", RUN: LONG}, {9: [], 30: []}
    ),
    by_the_minute("leaves the list with no run", {server_up(): GONE, RUN: "0+0x100"}, {15: [], 40: []}),
    by_the_minute(
        "leaves the list when another run has ended",
        {server_up(): "1+0x29 stale", RUN: LONG, OTHER_RUN: "1+0x5 0+0x300"},
        {36: [], 67: [], 75: [], 88: []},
    ),
    by_the_minute(
        "leaves the list long after another run has ended",
        {server_up(): "1+0x199 stale", RUN: LONG, OTHER_RUN: "1+0x5 0+0x300"},
        {204: [], 205: [SERVER]},
    ),
    by_the_minute(
        "of an attempt before, when its run is restarted",
        {server_up(): "1+0x4 stale", RUN: "1+0x5 0+0x3 1+0x100"},
        {11: [], 20: [], 60: []},
    ),
    by_the_minute(
        "leaves the list, and the runs are never heard of again",
        {server_up(): GONE, RUN: "1+0x15 stale"},
        {14: [], 15: [SERVER], 24: [SERVER], 28: []},
    ),
    by_the_minute(
        "two leave the list, seen by two run exporters",
        {
            server_up(): GONE,
            server_up(OTHER_SERVER): GONE,
            RUN: LONG,
            running("ppo/gsm8k", OTHER_EXPORTER): LONG,
        },
        {15: [SERVER, OTHER_SERVER]},
    ),
    *leaves_with_its_agent({NODE_SERVER: GONE}, ON_NODE),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {("EngineGone", "warning"): GOES}
