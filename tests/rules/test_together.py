"""All rules at once on runs that are well: nothing fires, and no rule fails."""

from __future__ import annotations

from pathlib import Path

from exporter.runs.stats.catalogue import STATISTICS
from tests.rules import cards, gpu, host, idle, ray, rendered, rollout, stack, upkeep, variations, xids
from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import INTERVAL, Group, Moment
from tests.rules.series import EXPORTER, OTHER_EXPORTER, Series
from tests.rules.variations import Phase

SECONDS = 1000

QUIET_STACK = {
    stack.EXPORTER_UP: 1,
    stack.OTHER_UP: 1,
    stack.NODE_UP: 1,
    stack.ROLLOUT_UP: 1,
    stack.FAILED_RULES: 0,
    stack.MISSED: 0,
    stack.PUSH_ERRORS: 0,
    stack.DROPPED: 0,
    stack.WEBHOOK_FAILED: 0,
    stack.PROMETHEUS_LOADED: 1,
    stack.ALERTMANAGER_LOADED: 1,
}

HEALTHY_GPU = {
    cards.TARGET_UP: 1,
    cards.up("ok"): 1,
    xids.xid(79): 0,
    gpu.MARGIN: 20,
    gpu.SLOWDOWN: 87,
    gpu.CORE: 67,
    idle.BUSY: 0.9,
    cards.USED: 76e9,
    cards.TOTAL: 80e9,
}


QUIET_AROUND = {
    **dict.fromkeys((*upkeep.FAILED, upkeep.REFUSED, upkeep.TOO_LARGE), 0),
    **{rollout.engine(name): 0 for name in rollout.VLLM.values()},
    ray.node_up(): 1,
    ray.MEMORY: 2e12,
    ray.SPILLED: 0,
    upkeep.MLFLOW: 1,
}


def test_healthy_runs_on_healthy_gpus_and_a_healthy_stack_raise_nothing(
    promtool: Path, tmp_path: Path
) -> None:
    rules = [rule for group in rendered.groups() for rule in rendered.rules(group, {})]
    phases = {
        "learns": (Phase(0, {}),),
        "learns, and is done": (Phase(0, {}), Phase(300, {h.STATE: "finished"})),
        "was done before": (Phase(0, {h.STATE: "finished", h.LAST_STEP_AT: -50000}),),
        "begins": (Phase(0, dict.fromkeys(h.HEALTHY)), Phase(300, {})),
    }
    series = {name: f"{value}+0x{SECONDS // INTERVAL}" for name, value in QUIET_STACK.items()}
    series |= {name: f"{value}+0x{SECONDS // INTERVAL}" for name, value in HEALTHY_GPU.items()}
    series |= {name: f"{value}+0x{SECONDS // INTERVAL}" for name, value in QUIET_AROUND.items()}
    series |= {**host.memory(f"500+0x{SECONDS // INTERVAL}"), **host.disk(f"5000+0x{SECONDS // INTERVAL}")}
    series |= dict.fromkeys((stack.POLLED, upkeep.CLOCK), f"0+{INTERVAL}x{SECONDS // INTERVAL}")
    for run, its in phases.items():
        for target in (EXPORTER, OTHER_EXPORTER):
            series |= variations.samples(run, its, list(HEALTHY), target, until=SECONDS)
    nothing = {rule["alert"]: [] for rule in rules if rule["alert"] != "Watchdog"}
    every = unit.silently(each for rule in rules for each in rendered.whole(rule, {}))
    group = Group("well", series, [Moment(at, nothing) for at in (2, 62, 302, 307, 622, 997)])
    unit.check(promtool, unit.write(tmp_path, "well", every, [group]))


def test_a_healthy_run_has_every_statistic_that_the_exporter_serves() -> None:
    served = {Series(each.metric, tuple(each.labels.items())) for each in STATISTICS}
    assert served <= HEALTHY.keys()
