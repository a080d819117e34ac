"""Operands about runs: statistics as the run exporter serves them, states, and the GPUs that a run uses."""

from __future__ import annotations

from exporter.alert_labels import ABOUT, ONSET, ONSET_STEP
from stepwatch.alerts.model.alert import Fact
from stepwatch.alerts.model.expression import (
    Expression,
    Formula,
    Limit,
    Scope,
    Series,
    any_of,
    bracketed,
    number,
    size,
)
from stepwatch.alerts.model.identity import RUN, written

REWARD = "reward"

SUFFERS_STDDEVS = 2
"""How many standard deviations a smoothed reward must be below its best to count as a drop: five (alpha 0.3)
to nine times (0.1) the noise of that mean. For a batch of 8, a share of the best alone is noise."""

SATURATED = 0.03
"""The range of 10 rewards that remains at a ceiling, as a share of the best. With a batch of 512 it is 14 %
if half of the responses are correct, and 1.4 % if 99 % are."""


def metric(name: str, **labels: str) -> Expression:
    """Return a metric of the runs."""
    return Series(name, labels)


def last(name: str, **labels: str) -> Expression:
    """Return a metric of the runs as it was within 10 minutes: a lost scrape resolves nothing."""
    return Series(name, labels, over=("last_over_time", "10m"))


def increased(name: str) -> Expression:
    """Return by how much a counter of the runs rose within an hour: a whole number, unlike ``increase``."""
    return metric(name) - Series(name, over=("min_over_time", "1h"))


def since_last_step() -> Expression:
    """Return the seconds since the last step was logged."""
    return Formula("time()") - metric("rl_last_step_timestamp_seconds")


def over(function: str, signal: str, steps: int) -> Expression:
    """Return ``min``, ``max``, ``mean``, ``median``, ``range``, ``level`` or ``spread`` of the last steps."""
    return metric(f"rl_{function}_over_steps", signal=signal, steps=str(steps))


def smoothed(signal: str, alpha: str = "0.1") -> Expression:
    """Return the exponential mean of a signal."""
    return metric("rl_ewma", signal=signal, alpha=alpha)


def start(signal: str) -> Expression:
    """Return the median of the first values."""
    return metric("rl_start", signal=signal)


def best(signal: str = REWARD) -> Expression:
    """Return the highest that the smoothed curve has been."""
    return metric("rl_best", signal=signal)


def peak(signal: str) -> Expression:
    """Return the highest that the smoothed curve of a signal without a good side has been."""
    return metric("rl_peak", signal=signal)


def stddev(signal: str = REWARD) -> Expression:
    """Return the run's own standard deviation from step to step."""
    return metric("rl_noise", signal=signal)


def drawdown(alpha: str) -> Expression:
    """Return how far the smoothed reward is below its best."""
    return metric("rl_drawdown", signal=REWARD, alpha=alpha)


def least_drawdown(alpha: str, steps: int) -> Expression:
    """Return the smallest drawdown of the last steps."""
    return metric("rl_drawdown_min_over_steps", signal=REWARD, alpha=alpha, steps=str(steps))


def lost(ratio: str, alpha: str = "0.1") -> Expression:
    """Return where the reward is below its best by more than this share of it; the key of the share."""
    return drawdown(alpha) > Limit(ratio) * size(best())


def suffers(ratio: str, alpha: str = "0.1") -> Expression:
    """Return the same where the drop also exceeds noise."""
    return lost(ratio, alpha) & (drawdown(alpha) > SUFFERS_STDDEVS * stddev())


def solved(ratio: str) -> Expression:
    """Return where the reward is near the highest samples, or constant at its best."""
    highest = over("median", "reward_max", 64)
    near = (smoothed(REWARD) > Limit(ratio) * highest) & (highest > 0)
    still = over("range", REWARD, 10) < SATURATED * best()
    return near | still.unless(best() - smoothed(REWARD) > 0.1 * best())


def is_in(*states: str) -> Expression:
    """Return where the run is in one of these states."""
    return any_of(metric("rl_run_state", state=state).equals(1) for state in states)


# Which GPUs a run uses: those on which its processes hold memory. The run exporter serves the processes of a
# run, the GPU exporter those of each GPU (`gpus.processes`). Ids are compared within one PID namespace of one
# machine only; GPUs are known by their UUIDs. The result is recorded for dashboards and reports. A rule has
# the join inside it: where each rule is evaluated by itself, one that depends on another does not hold.

RECORDED = "rl_run_gpu"
"""A GPU that a run uses, by ``instance``, ``gpu`` and ``uuid``; ``by`` says how that is known; always 1."""

_RUN = written(RUN)
_GPU = written(RUN, "instance", "gpu", "uuid")


def _used(labels: str) -> str:
    """Return the GPUs on which runs hold memory; a process of two runs is of neither (no such join)."""
    processes = f"group by ({_RUN}, pid_namespace, pid) (rl_run_gpu_process_info)"
    return (
        f"group by ({labels}) (\n"
        "  gpu_process_memory_bytes\n"
        f"  * on (pid_namespace, pid) group_left ({_RUN}) (\n"
        f"    {processes}\n"
        f"    unless on (pid_namespace, pid) count by (pid_namespace, pid) ({processes}) > 1\n"
        "  )\n"
        ")"
    )


def by_either(ours: str, dcgm: str) -> str:
    """Return a value of each GPU by its UUID, as our GPU exporter serves it, or NVIDIA's DCGM exporter."""
    return f'max by (uuid) ({ours} or label_replace({dcgm}, "uuid", "$1", "UUID", "(.+)"))'


def highest(value: str, memory: str, in_use: float) -> Expression:
    """Return a value for each running run: the highest among the GPUs that it may use.

    These are all but those that only other runs are known to use. A step may wait for a GPU on which the
    run's own processes hold nothing: that of a rollout server started by itself, or of another machine. GPUs
    that no run is known to use count only where the memory of one is in use: else the run is elsewhere.

    Args:
        value: PromQL of the value, by UUID.
        memory: PromQL of the share of its memory that is in use, by UUID.
        in_use: From which share on.
    """
    used = _used(f"{_RUN}, uuid")
    running = is_in("running").promql(Scope())
    unclaimed, held = (
        f"max{bracketed(f'{each}{chr(10)}unless on (uuid) {used}')}" for each in (value, memory)
    )
    others = bracketed(f"{unclaimed}\nand {held} > {number(in_use)}")
    return Formula(
        f"max by ({_RUN}) "
        + bracketed(
            f"{value}\n* on (uuid) group_right () {used}\nor {others} * on () group_right () ({running})"
        )
    )


def recording_rule() -> dict[str, str]:
    """Return the rule that records the GPUs of each run: by its processes, or else those of its machine."""
    used = _used(_GPU)
    listed = f"group by ({_RUN}, uuid) (rl_run_node_gpu_info)\nunless on (uuid) {used}"
    node = bracketed(
        f"{bracketed(listed)}\n* on (uuid) group_left (instance, gpu)\n  topk by (uuid) (1, gpu_up)"
    )
    known, else_ = (
        "label_replace" + bracketed(f'{found},\n"by", "{by}", "", ""')
        for found, by in ((used, "process"), (f"group by ({_GPU}) {node}", "node"))
    )
    return {"record": RECORDED, "expr": f"{known}\nor on ({_RUN}) {else_}"}


CLOCK_RATIO = "rl_gpu_clock_ratio"
"""The highest SM clock of a busy GPU within 5 minutes, as a share of its maximum.

One series per group of peers, named by ``cluster``, ``run``, ``peers`` (a machine if the run is unknown) and
``model``.

The highest clock, since it does not depend on the load of a card that is not throttled: rollout and training
draw different power, and so have different clocks most of the time."""

_AT_WORK = 0.3  # share of the time with a kernel: idle cards lower their clocks


def clock_rule() -> dict[str, str]:
    """Return the rule that records ``CLOCK_RATIO``.

    The peers of a GPU are those of its run, as ``RECORDED`` has them. A run exporter sees the processes of
    its own machine, so GPUs of other nodes are of no run that is known: if one run is running, they are
    taken for its, else those of one machine for peers of each other.
    """
    gpu, by = "instance, gpu, uuid", written(RUN, "instance", "gpu", "uuid")
    clock = 'max_over_time(gpu_clock_hertz{domain="sm"}[5m])'
    ratio = (
        f'max by (uuid) (max by ({gpu}) ({clock}) / max by ({gpu}) (gpu_clock_max_hertz{{domain="sm"}}))\n'
        f"  and max by (uuid) (avg_over_time(gpu_utilization_ratio[5m])) > {number(_AT_WORK)}"
    )
    model = 'max by (uuid, model) (label_replace(gpu_info, "model", "$1", "name", "(.+)"))'
    running = f'max by ({_RUN}) (rl_run_state{{state="running"}}) == 1'
    of_none = f"group by ({gpu}) (gpu_up) unless on (uuid) {RECORDED}"
    machine = f'label_replace({of_none}, "peers", "$1", "instance", "(.+)")'
    return {
        "record": CLOCK_RATIO,
        "expr": f"(\n  group by ({by}) ({RECORDED})\n"
        f"  or ({of_none})\n"
        f"    * on () group_left ({_RUN}) ({running} and on () count({running}) == 1)\n"
        f"  or {machine} and on () count({running}) > 1\n"
        ")\n* on (uuid) group_left (model) (\n"
        f"  {model}\n  * on (uuid) group_left () ({ratio})\n"
        ")",
    }


POWER = "rl_run_power_watts"
"""What the GPUs of a run take; for tables over weeks, which would join each GPU at each point in time."""


def power_rule() -> dict[str, str]:
    """Return the rule that records the power of each run, by its GPUs' counters of energy or their power."""
    power = "max by (uuid) (rate(gpu_energy_joules_total[2m]))\nor max by (uuid) (gpu_power_watts)"
    used = f"group by ({_RUN}, uuid) ({RECORDED})"
    return {
        "record": POWER,
        "expr": f"sum by ({_RUN}) " + bracketed(f"{used}\n* on (uuid) group_left () {bracketed(power)}"),
    }


_SICK = "RewardDrop|RewardCollapse|ValidationDrop|KL.*|PolicyKLHigh|Entropy.*|GradNorm.*|NonFinite"
"""Alerts that indicate damaged weights, as a pattern of PromQL."""

WARNED = "rl_run_warned_step"
"""The earliest onset of the firing alerts that indicate damaged weights, by attempt of the run."""

FIRST_WARNING = "rl_run_first_warning_step"
"""The same with those that ended lately, of the present attempt."""

_MEMORY_STEPS = 50
"""An ended warning counts for an hour, or for six where so many steps take longer than one."""

GOOD_CHECKPOINT = "rl_run_good_checkpoint"
"""The last checkpoint of a run that is older than the first sign of trouble; its value is that step."""

LAST_GOOD = Fact(
    f"{GOOD_CHECKPOINT}{{%s}}",
    "; resume from {{.Labels.checkpoint}} (before the first warning at {{.Value}})",
)


SHOWN_STATE = "rl_run_shown_state"
"""The state of a run as people see it, as its place in ``SHOWN_STATES``; for dashboards."""

SHOWN_STATES = ("failed", "vanished", "stopped", "stalled", "finished", "running")
"""The worst comes first: it is shown if two exporters disagree."""


def state_rule() -> dict[str, str]:
    """Return the rule that records the state of each run as one number, from 1; Stalled goes before it."""
    stalls = f'and on ({_RUN}) ALERTS{{alertname="Stalled",alertstate="firing"}}'
    codes = []
    for code, name in enumerate(SHOWN_STATES, 1):
        state, holds = ("running", f" {stalls}") if name == "stalled" else (name, "")
        codes.append(f'{code} * (max by ({_RUN}) (rl_run_state{{state="{state}"}}) == 1{holds})')
    return {"record": SHOWN_STATE, "expr": "\nor ".join(codes)}


_SHOWN = written(("alertname", "severity", "topic", *ABOUT))
"""The labels by which tables and marks distinguish and select alerts."""


def onset_rules() -> list[dict[str, str]]:
    """Return the rules that record the onset of each alert, which outlives a restart, and its step."""
    labels = written(("alertname", "severity", *RUN))
    active = f'max by ({labels}) (ALERTS{{run!=""}})'
    others = 'alertname!="Watchdog"'
    return [
        {
            "record": ONSET,
            "expr": f"{ONSET} and max by ({_SHOWN}) (ALERTS{{{others}}})\n"
            f"or max by ({_SHOWN}) (ALERTS_FOR_STATE{{{others}}})",
        },
        {
            "record": ONSET_STEP,
            "expr": f"{ONSET_STEP} and {active}\n"
            f"or {active} * on ({_RUN}) group_left () max by ({_RUN}) (rl_step)",
        },
    ]


def checkpoint_rules() -> list[dict[str, str]]:
    """Return the rules that record the checkpoint to resume from, before any warning, ended ones too."""
    run, of_alert = written(RUN), written(("alertname", "severity", *RUN))
    before = f"on ({run}) group_left ()"
    sick = f'{ONSET_STEP}{{alertname=~"{_SICK}"}}'
    attempt = f'count_values by ({run}) ("attempt", max by ({run}) (rl_restarts_total))'
    firing = f'{sick} and on ({of_alert}) ALERTS{{alertstate="firing"}}'
    # An alert that fires on after a resume is about later steps than the run's.
    fired = f"min by ({run}) (({firing}) <= {before} max by ({run}) (rl_step))"
    slow = f"max by ({run}) (rl_step_interval_typical_seconds) > {3600 // _MEMORY_STEPS}"
    # The left one has precedence; it includes the other.
    memory = f"min_over_time({WARNED}[6h]) and on ({run}) {slow}\n  or min_over_time({WARNED}[1h])"
    first = f"({FIRST_WARNING} or max by ({run}) (rl_step))"
    saved = f"max by ({run}, checkpoint) (rl_run_checkpoint_step)"
    return [
        {"record": WARNED, "expr": f"{attempt}\n* {before} {fired}"},
        {
            "record": FIRST_WARNING,
            "expr": f"min by ({run}) (\n  {sick}\n  or ({memory}) and on ({run}, attempt) {attempt}\n)",
        },
        {
            "record": GOOD_CHECKPOINT,
            "expr": f"topk by ({run}) (1, {saved} < {before} {first}) * 0\n+ {before} {first}",
        },
    ]
