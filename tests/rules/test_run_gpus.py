"""Which GPUs a run uses is recorded: by its processes, or else those of its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.cards import HERE, NEIGHBOUR, OTHER_BOX, TWICE, up
from tests.rules.promtool import Group
from tests.rules.series import EXPORTER, OTHER_EXPORTER, selector
from tests.rules.stack import Labels

AT = 62
BOOT, OTHER_BOOT = "086fb401f216-4026531836", "b7d1c0ffee00-4026531836"
"""The first namespaces of two machines have one number."""

ELSEWHERE = {**OTHER_BOX, "uuid": "GPU-9"}
CARDS = (HERE, NEIGHBOUR, ELSEWHERE)
UP = {up("ok", card): "1+0x99" for card in CARDS}


def _process(run: str, pid: int, namespace: str = BOOT, target: Labels = EXPORTER, **more: str) -> str:
    return selector(
        "rl_run_gpu_process_info", run=run, pid=str(pid), pid_namespace=namespace, **target, **more
    )


def _holds(pid: int, card: Labels, namespace: str = BOOT, **more: str) -> str:
    return selector(
        "gpu_process_memory_bytes", pid=str(pid), pid_namespace=namespace, name="a", **card, **more
    )


def _node(run: str, card: Labels, target: Labels = EXPORTER) -> str:
    return selector("rl_run_node_gpu_info", run=run, uuid=card["uuid"], **target)


def _used(run: str, card: Labels, by: str, **more: str) -> str:
    """Selects the one series of a run and a GPU."""
    here = {name: card[name] for name in ("instance", "gpu", "uuid")}
    return selector("rl_run_gpu", run=run, by=by, job="", **here, **more)


BOTH = (HERE, NEIGHBOUR)
USED: dict[str, tuple[list[str], list[str]]] = {
    "those on which its processes hold memory": (
        [
            *(_process("ppo", pid) for pid in (100, 101, 102)),
            *(_holds(100, HERE), _holds(101, HERE), _holds(101, NEIGHBOUR)),
            *(_process("sft", 200), _holds(200, NEIGHBOUR), _holds(300, NEIGHBOUR)),
            selector("gpu_process_memory_bytes", pid="", pid_namespace="", name="other", **HERE),
            *(_node("ppo", card) for card in BOTH),
        ],
        [*(_used("ppo", card, "process") for card in BOTH), _used("sft", NEIGHBOUR, "process")],
    ),
    "one id in two namespaces is two processes": (
        [
            *(_process("ppo", 100), _process("sft", 100, OTHER_BOOT, OTHER_EXPORTER)),
            *(_process("dpo", 100, "086fb401f216-4026532000"), _holds(100, HERE)),
            *(_holds(100, ELSEWHERE, OTHER_BOOT), _holds(100, NEIGHBOUR, "simulated")),
        ],
        [_used("ppo", HERE, "process"), _used("sft", ELSEWHERE, "process")],
    ),
    "without known processes those of its machine that are no other run's": (
        [
            *(_process("sft", 200), _holds(200, NEIGHBOUR)),
            *(_node(run, card) for run in ("ppo", "sft", "dpo") for card in BOTH),
            _node("grpo", ELSEWHERE, OTHER_EXPORTER),
        ],
        [
            *(_used("sft", NEIGHBOUR, "process"), _used("ppo", HERE, "node")),
            *(_used("dpo", HERE, "node"), _used("grpo", ELSEWHERE, "node")),
        ],
    ),
    "what two exporters see counts once": (
        [
            *(_process("ppo", 100), _process("ppo", 100, target=OTHER_EXPORTER)),
            *(_holds(100, HERE), _holds(100, TWICE), up("ok", TWICE)),
            *(_node("sft", NEIGHBOUR, target) for target in (EXPORTER, OTHER_EXPORTER)),
        ],
        [_used("ppo", HERE, "process"), _used("sft", NEIGHBOUR, "node")],
    ),
    "a process of which two exporters name different runs is of neither": (
        [
            *(_process("ppo", 100), _process("runs/ppo", 100, target=OTHER_EXPORTER), _holds(100, HERE)),
            *(_process("sft", 200), _holds(200, NEIGHBOUR)),
        ],
        [_used("sft", NEIGHBOUR, "process")],
    ),
    "the cluster is the run's even where only its exporter has the label": (
        [
            *(_process("ppo", 100, cluster="east"), _holds(100, HERE)),
            *(_process("sft", 200), _holds(200, NEIGHBOUR, cluster="east")),
        ],
        [_used("ppo", HERE, "process", cluster="east"), _used("sft", NEIGHBOUR, "process", cluster="")],
    ),
}


@pytest.mark.parametrize(("series", "used"), USED.values(), ids=USED)
def test_which_gpus_a_run_uses(series: list[str], used: list[str], promtool: Path, tmp_path: Path) -> None:
    there = {name: f"{5e9 if 'bytes' in name else 1}+0x99" for name in series}
    values = {(f"sum({each})", AT): 1.0 for each in used}
    values["count(rl_run_gpu) or vector(0)", AT] = float(len(used))
    group = Group("run_gpus", {**UP, **there}, [], values)
    unit.check(promtool, unit.write(tmp_path, "run_gpus", rendered.recorded("run_gpus"), [group]))


def test_the_power_of_a_run_is_that_of_its_gpus_by_counters_of_energy_or_else_as_it_is(
    promtool: Path, tmp_path: Path
) -> None:
    there = {
        _process("ppo", 100): "1+0x99",
        _process("sft", 200): "1+0x99",
        _holds(100, HERE): "5e9+0x99",
        _holds(100, NEIGHBOUR): "5e9+0x99",
        _holds(200, ELSEWHERE): "5e9+0x99",
        selector("gpu_power_watts", **HERE): "1+0x99",  # the counter is the better one
        selector("gpu_power_watts", **NEIGHBOUR): "300+0x99",
        selector("gpu_energy_joules_total", **HERE): "0+30000x99",
    }
    later = 302  # a rate over 2 minutes is known
    values = {
        ('round(sum(rl_run_power_watts{run="ppo"}))', later): 300 + 30000 / unit.INTERVAL,
        ("count(rl_run_power_watts)", later): 1.0,
    }
    group = Group("run_gpus", {**UP, **there}, [], values)
    unit.check(promtool, unit.write(tmp_path, "run_gpus", rendered.recorded("run_gpus"), [group]))
