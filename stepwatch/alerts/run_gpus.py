"""Which GPUs a run uses: those on which its processes hold memory, as far as process ids tell.

The run exporter serves the processes of a run, the GPU exporter those of each GPU (`gpus.processes`). Ids are
compared within one PID namespace of one machine only; GPUs are known by their UUIDs. The result is recorded
for dashboards and reports (``RECORDED``). A rule has the join inside it: where each rule is evaluated by
itself, one that depends on another does not hold.
"""

from __future__ import annotations

from stepwatch.alerts.expression import Expression, Raw, Scope, bracketed, number
from stepwatch.alerts.identity import RUN, written
from stepwatch.alerts.statistics import is_in

RECORDED = "rl_run_gpu"
"""A GPU that a run uses, by ``instance``, ``gpu`` and ``uuid``; ``by`` says how that is known; always 1."""

_RUN = written(RUN)
_GPU = written(RUN, "instance", "gpu", "uuid")


def _used(labels: str) -> str:
    """Return the GPUs on which processes of runs hold memory.

    A process for which two run exporters name different runs is of neither: Prometheus refuses such a join.
    """
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
    return Raw(
        f"max by ({_RUN}) "
        + bracketed(
            f"{value}\n* on (uuid) group_right () {used}\nor {others} * on () group_right () ({running})"
        )
    )


def recording_rule() -> dict[str, str]:
    """Return the rule that records the GPUs of each run: by its processes, or else those of its machine.

    Of its machine's, those that another run is known to use are left out.
    """
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
