"""Which GPUs are peers is recorded with their clocks, and a slow one among them is found from raw series."""

from __future__ import annotations

from pathlib import Path

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


def check(promtool: Path, folder: Path, series: dict[str, str], *behind: tuple[str, int]) -> None:
    """Fail unless just these GPUs are behind their peers after a while."""
    rule = rendered.rule("Straggler", "warning", "cluster")
    (alert,) = unit.silently([rule])
    fired = [
        {name: card(*each)[name] for name in ("instance", "gpu", "uuid")} | rule["labels"] for each in behind
    ]
    group = Group("peers", series, [Moment(30 * MINUTE + 2, {"Straggler": fired})], interval=MINUTE)
    unit.check(promtool, unit.write(folder, "peers", [*rendered.recorded("run_gpus"), alert], [group]))


def _node(node: str, *clocks: str) -> dict[str, str]:
    return {
        name: value for number, clock in enumerate(clocks) for name, value in gpu(node, number, clock).items()
    }


ALIVE = {RUNNING: "1+0x35"}


def test_one_slow_gpu_of_a_run_on_one_machine(promtool: Path, tmp_path: Path) -> None:
    own = {name: value for n in range(4) for name, value in of_machine("ppo", "a", n).items()}
    check(promtool, tmp_path, {**ALIVE, **own, **_node("a", TRAINS, TRAINS, SLOW, TRAINS)}, ("a", 2))


def test_the_only_run_is_taken_for_that_of_all_nodes(promtool: Path, tmp_path: Path) -> None:
    own = {name: value for n in range(2) for name, value in of_machine("ppo", "a", n).items()}
    series = {**ALIVE, **own, **_node("a", TRAINS, TRAINS), **_node("b", SLOW, SLOW), **_node("c", TRAINS)}
    check(promtool, tmp_path, series, ("b", 0), ("b", 1))


def test_rollout_beside_training_is_not_a_straggler_nor_training_beside_rollout(
    promtool: Path, tmp_path: Path
) -> None:
    check(promtool, tmp_path, {**ALIVE, **_node("a", *[TRAINS] * 4), **_node("b", *[GENERATES] * 5)})
    check(promtool, tmp_path, {**ALIVE, **_node("a", *[TRAINS] * 5), **_node("b", *[GENERATES] * 4)})


def test_of_several_runs_the_gpus_of_a_machine_are_peers_alone(promtool: Path, tmp_path: Path) -> None:
    both = {**ALIVE, OTHER_RUNNING: "1+0x35"}
    check(promtool, tmp_path, {**both, **_node("a", *[SLOW] * 4), **_node("b", *[TRAINS] * 8)})
    check(promtool, tmp_path, {**both, **_node("a", SLOW, *[TRAINS] * 3), **_node("b", SLOW)}, ("a", 0))


def test_idle_gpus_and_other_models_are_no_peers(promtool: Path, tmp_path: Path) -> None:
    idle = {name: value for n in range(4) for name, value in gpu("b", n, SLOW, busy=0.3).items()}
    other = {name: value for n in range(3) for name, value in gpu("c", n, SLOW, model="L40S").items()}
    check(promtool, tmp_path, {**ALIVE, **_node("a", *[TRAINS] * 8), **idle, **other})


def test_without_a_run_no_gpu_is_judged(promtool: Path, tmp_path: Path) -> None:
    check(promtool, tmp_path, _node("a", TRAINS, TRAINS, SLOW, TRAINS))
