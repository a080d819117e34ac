"""Operands about GPUs, machines, servers and Ray nodes, and the conditions that these alerts share."""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model import identity
from stepwatch.alerts.model.alert import Alert, Condition
from stepwatch.alerts.model.expression import Expression, Formula, On, Series
from stepwatch.alerts.model.identity import written

HOST = written(identity.HOST)
GPU = written(identity.GPU, "uuid")
DISK = written(identity.DISK)
SERVER = written(identity.SERVER)

EVENT_WINDOW = "1h"
"""How long an event, such as an Xid error or a killed worker, keeps its alert firing."""

LAST_KNOWN = "10m"
"""How long a series without samples counts as it was: a lost scrape resolves nothing."""

SETTLED = "2h"
"""How long after a run began or ended its servers may come and go without an alert."""


def gpus(inner: str, function: str = "max") -> Formula:
    """Return one value for each GPU, regardless of other labels."""
    return Formula(f"{function} by ({GPU}) ({inner})")


def gpu(metric: str, **labels: str) -> Series:
    """Return the same for one metric, for the GPUs that a scope selects."""
    return Series(metric, labels, by=GPU)


def hosts(inner: str) -> Formula:
    """Return one value for each machine."""
    return Formula(f"max by ({HOST}) ({inner})")


def disks(inner: str) -> Formula:
    """Return one value for each file system."""
    return Formula(f"max by ({DISK}) ({inner})")


def servers(inner: str, function: str = "max") -> Formula:
    """Return one value for each target."""
    return Formula(f"{function} by ({SERVER}) ({inner})")


def ray_nodes(inner: str, function: str = "max") -> Formula:
    """Return one value for each address, regardless of ports: a Ray node has up to three."""
    address = '"node", "$1", "instance", "(.+?)(?::[0-9]+)?"'
    return Formula(f"{function} by ({written(identity.RAY_NODE)}) (label_replace({inner}, {address}))")


def agents(inner: str) -> Formula:
    """Return one value for each node with an agent."""
    return Formula(f"max by ({written(identity.NODE)}) ({inner})")


_WRITTEN, _DELAY = "stepwatch_agent_last_write_timestamp_seconds", "stepwatch_agent_delay_seconds"
_NEWEST = "stepwatch_agent_newest_sample_timestamp_seconds"


def agent_rules() -> list[dict[str, str]]:
    """Return the rules that record what a hub knows of its agents, by the samples that it has of them.

    An agent always scrapes its run exporter. Its clock may be behind, or ahead by 10 min at most; the
    subquery looks at whole minutes, up to the next one. The newest sample of an hour counts. Data came when
    that became another one, by the hub's clock.
    """
    by = written(identity.NODE)
    newest = f'max by ({by}) (max_over_time(timestamp(up{{job="runs",node!=""}})[71m:1m] offset -11m))'
    return [
        {
            "record": _WRITTEN,
            "expr": f"time() + 0 * (\n  {newest}\n  unless {newest} == last_over_time({_NEWEST}[1h])\n)\n"
            f"or last_over_time({_WRITTEN}[1h]) > time() - 3600",
        },
        {"record": _NEWEST, "expr": newest},
        {"record": _DELAY, "expr": f"time() - {_NEWEST}"},
    ]


def delay(inner: str) -> str:
    """Return the PromQL of what is known of an agent's delay, while it writes."""
    return f"{inner} and (time() - {_WRITTEN} < 60)"


STEADY_DELAY = (
    "max_over_time(stepwatch_agent_delay_seconds[5m]) - min_over_time(stepwatch_agent_delay_seconds[5m]) < 10"
)
"""PromQL of a delay that stays the same, as that of a clock that is off: a backlog grows or is made up for.
An agent scrapes its runs every 5 s, which makes that much of a difference."""

SILENT = (
    f'present_over_time(up{{node!=""}}[{EVENT_WINDOW}])'
    f" and on (node) (time() - max by (node) (max_over_time({_WRITTEN}[{EVENT_WINDOW}])) > 60)"
)
"""PromQL of the targets of agents that do not write."""


def counted(counter: str) -> Expression:
    """Return how much a counter of each GPU rose recently: whole numbers, unlike ``increase``."""
    return gpus(f"{counter} - min_over_time({counter}[{EVENT_WINDOW}])")


def events(counter: str) -> str:
    """Return the PromQL of a counter's recent events, if any.

    A counter that rose has events. So does a counter that appeared, which ``increase`` does not see: it is
    missing from some successful scrapes of the last hour, so it did not exist before Prometheus started, and
    from all scrapes of the hour before, so it was not only absent for a while.
    """
    return (
        f"\n  increase({counter}[{EVENT_WINDOW}]) > 0\n"
        f"  or {counter}\n"
        f"    and count_over_time({counter}[{EVENT_WINDOW}])\n"
        f"      < on ({SERVER}) group_left () max by ({SERVER}) (sum_over_time(up[{EVENT_WINDOW}]))\n"
        f"    unless present_over_time({counter}[{EVENT_WINDOW}] offset {EVENT_WINDOW})\n"
    )


gpu_alert = partial(Alert, topic="gpu", about="gpu")
"""An alert on a GPU."""


def gone(
    measured: str, answers: Expression, was_listed: Expression, listed: Expression, silent: Expression
) -> tuple[Condition, Condition]:
    """Return the conditions of a server that is missing while a run is running."""
    return (
        Condition(measured, answers.equals(0), given=RUN_LAST_IN_PROGRESS),
        Condition(
            "left the target list",
            was_listed.unless(listed | silent).equals(1),
            given=RUN_IN_PROGRESS,
            sparing=RUNS_CHANGED,
        ),
    )


def _running(selector: str) -> Expression:
    return On("", Formula(f"max by (run) ({selector}) == 1"))


RUN_IN_PROGRESS = _running('rl_run_state{state="running"}')
"""The right side of ``and``: while a run is running. Runs and servers share at most the label `cluster`,
which users may set on some jobs only: joined by it, alerts on these jobs would never fire."""

RUN_LAST_IN_PROGRESS = _running(f'last_over_time(rl_run_state{{state="running"}}[{LAST_KNOWN}])')
"""The same, as far as the exporter's last answer says."""

RUNS_CHANGED = On("", Formula(f'max by (run) (changes(rl_run_state{{state="running"}}[{SETTLED}])) > 0'))
"""The right side of ``unless``: a run started or ended recently. Its servers come and go with it, and no
label shows which servers belong to it."""
