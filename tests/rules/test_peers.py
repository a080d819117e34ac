"""Which GPUs are peers is recorded with their clocks, and a slow one among them is found from raw series."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.promtool import Group, Moment
from tests.rules.series import EXPORTER, selector
from tests.rules.stack import MINUTE, Labels

RUNNING = selector("rl_run_state", run="ppo", state="running", **EXPORTER)
OTHER_RUNNING = selector("rl_run_state", run="sft", state="running", **EXPORTER)
TRAINS = "1980+0x1 1400+0x1 1980+0x0 1300+0x1"
"""MHz, a sample a minute: power holds the clocks down, but for moments."""
GENERATES = "1980+0x6"
SLOW = "1200+0x6"


def card(node: str, number: int) -> Labels:
    uuid = f"GPU-{node}-{number}"
    return {"job": "gpu", "instance": f"{node}:9411", "node": node, "gpu": str(number), "uuid": uuid}


def gpu(node: str, number: int, clock: str, busy: float = 0.9, model: str = "H100") -> dict[str, str]:
    """A GPU of a node as the GPU exporter serves it; its clock comes again each 7 minutes."""
    labels = card(node, number)
    return {
        selector("gpu_clock_hertz", **labels, domain="sm"): " ".join([clock] * 5),
        selector("gpu_clock_hertz", **labels, domain="memory"): "2619+0x35",
        selector("gpu_clock_max_hertz", **labels, domain="sm"): "1980+0x35",
        selector("gpu_clock_max_hertz", **labels, domain="memory"): "2619+0x35",
        selector("gpu_utilization_ratio", **labels): f"{busy}+0x35",
        selector("gpu_info", **labels, name=model, pci_bus_id="0", serial="1"): "1+0x35",
        selector("gpu_up", **labels, reason="ok"): "1+0x35",
    }


def of_machine(run: str, node: str, number: int) -> dict[str, str]:
    """What the run exporter serves: a GPU of the machine where it reads the log."""
    return {selector("rl_run_node_gpu_info", run=run, uuid=card(node, number)["uuid"], **EXPORTER): "1+0x35"}


def _node(node: str, *clocks: str) -> dict[str, str]:
    return {
        name: value for number, clock in enumerate(clocks) for name, value in gpu(node, number, clock).items()
    }


ALIVE = {RUNNING: "1+0x35"}


BOTH = {**ALIVE, OTHER_RUNNING: "1+0x35"}
Cards = tuple[tuple[str, int], ...]


def _machine(count: int) -> dict[str, str]:
    return {name: value for n in range(count) for name, value in of_machine("ppo", "a", n).items()}


PEERS: dict[str, tuple[dict[str, str], Cards]] = {
    "a slow one of a run on one machine": (
        {**ALIVE, **_machine(4), **_node("a", TRAINS, TRAINS, SLOW, TRAINS)},
        (("a", 2),),
    ),
    "the only run is taken for that of all nodes": (
        {
            **ALIVE,
            **_machine(2),
            **_node("a", *[TRAINS] * 2),
            **_node("b", *[SLOW] * 2),
            **_node("c", TRAINS),
        },
        (("b", 0), ("b", 1)),
    ),
    "rollout beside training": ({**ALIVE, **_node("a", *[TRAINS] * 4), **_node("b", *[GENERATES] * 5)}, ()),
    "training beside rollout": ({**ALIVE, **_node("a", *[TRAINS] * 5), **_node("b", *[GENERATES] * 4)}, ()),
    "of several runs those of another machine": (
        {**BOTH, **_node("a", *[SLOW] * 4), **_node("b", *[TRAINS] * 8)},
        (),
    ),
    "of several runs those of a machine": (
        {**BOTH, **_node("a", SLOW, *[TRAINS] * 3), **_node("b", SLOW)},
        (("a", 0),),
    ),
    "idle ones and other models": (
        {
            **ALIVE,
            **_node("a", *[TRAINS] * 8),
            **{name: value for n in range(4) for name, value in gpu("b", n, SLOW, busy=0.3).items()},
            **{name: value for n in range(3) for name, value in gpu("c", n, SLOW, model="L40S").items()},
        },
        (),
    ),
    "no run": (_node("a", TRAINS, TRAINS, SLOW, TRAINS), ()),
}


@pytest.mark.parametrize(("series", "behind"), PEERS.values(), ids=PEERS)
def test_gpus_behind_their_peers(
    series: dict[str, str], behind: Cards, promtool: Path, tmp_path: Path
) -> None:
    (alert,) = unit.silently([rendered.rule("Straggler", "warning", "cluster")])
    fired = [
        {name: card(*each)[name] for name in ("instance", "gpu", "uuid")} | alert["labels"] for each in behind
    ]
    group = Group("peers", series, [Moment(30 * MINUTE + 2, {"Straggler": fired})], interval=MINUTE)
    unit.check(promtool, unit.write(tmp_path, "peers", [*rendered.recorded("run_gpus"), alert], [group]))
