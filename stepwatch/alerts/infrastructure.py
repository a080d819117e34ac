"""What the alerts on GPUs, servers and machines have in common: blocks of limits, and operands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from stepwatch.alerts import identity
from stepwatch.alerts.alert import Alert, Way
from stepwatch.alerts.expression import Expression, Limit, Number, Scope, Series, bracketed, is_number
from stepwatch.alerts.identity import written
from stepwatch.schema.block import Block
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import Severity
from stepwatch.schema.section import default

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

_LIMIT = re.compile(r"<([\w.]+)>(s?)")


class InfrastructureBlock(Block):
    """Limits that hold for all runs: no override can name them."""

    about_runs: ClassVar[bool] = False


class WarningBlock(InfrastructureBlock):
    """The limits of an alert that can wait for the morning."""

    severity: Severity = default("warning", "Can wait for the morning: what pages is a run that suffers.")


class CriticalBlock(InfrastructureBlock):
    """The limits of an alert that pages."""

    severity: Severity = default(
        "critical", "Pages: runs fail, hang or compute wrong results, or no one watches them."
    )


def hold(span: str, why: str, basis: str) -> Any:
    """Return the default of the key ``for``, how long a condition must hold, with reason and basis."""
    return default(Duration.parse(span), why, basis, alias="for")


@dataclass(frozen=True, eq=False)
class Formula(Expression):
    """PromQL that a limit is part of, by its key in angle brackets: ``max_over_time(up[<within>s])``.

    With an ``s`` behind it a limit in seconds is a duration.
    """

    text: str

    def promql(self, scope: Scope) -> str:
        def limit(match: re.Match[str]) -> str:
            text = scope.limit(match[1])
            if match[2] and is_number(text):
                return str(Duration(round(1000 * float(text))))
            return text + match[2]

        return _LIMIT.sub(limit, self.text)

    def parts(self) -> Iterator[Expression]:
        yield self
        yield from (Limit(match[1]) for match in _LIMIT.finditer(self.text))


@dataclass(frozen=True, eq=False)
class On(Expression):
    """The right side of ``and`` or ``unless`` that is matched on some labels only."""

    labels: str
    inside: Expression

    def promql(self, scope: Scope) -> str:
        return f"on ({self.labels}) {bracketed(self.inside.promql(scope))}"

    def parts(self) -> Iterator[Expression]:
        yield self
        yield from self.inside.parts()


@dataclass(frozen=True, eq=False)
class OneOf(Expression):
    """The series of an operand whose value is in a list of config.yaml."""

    operand: Expression
    key: str

    rank = 1  # as that of `or`

    def promql(self, scope: Scope) -> str:
        operand, listed = self.operand.promql(scope), scope.limit(self.key)
        if not listed:
            return f"{operand} == NaN"  # as no value is
        return "\nor ".join(f"{operand} == {value}" for value in listed.split("|"))

    def parts(self) -> Iterator[Expression]:
        yield self
        yield Limit(self.key)
        yield from self.operand.parts()


def gpus(inner: str, function: str = "max") -> Formula:
    """Return one value for each GPU, whatever else its series are labelled with."""
    return Formula(f"{function} by ({GPU}) ({inner})")


def gpu(metric: str, **labels: str) -> Series:
    """Return the same of one metric, for the GPUs that a scope selects."""
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
    """Return one value for each address, whatever its ports: a Ray node has up to three."""
    address = '"node", "$1", "instance", "(.+?)(?::[0-9]+)?"'
    return Formula(f"{function} by ({written(identity.RAY_NODE)}) (label_replace({inner}, {address}))")


def counted(counter: str) -> Expression:
    """Return by how much a counter of each GPU rose of late: whole numbers, unlike ``increase``."""
    return gpus(f"{counter} - min_over_time({counter}[{EVENT_WINDOW}])")


def events(counter: str) -> str:
    """Return the PromQL of what a counter counted of late, if anything.

    A counter that rose has counted. So has one that appeared, which ``increase`` does not see: it is not in
    every successful scrape of the last hour, as it would be had it been there before Prometheus was, and
    in none of the hour before, as it would be had it only been away for a while.
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

server_alert = partial(Alert, topic="rollout", about="server")
"""An alert on a server that a run works with."""


def fails(
    measured: str, value: Expression, given: Expression | None = None, sparing: Expression | None = None
) -> Way:
    """Return the way of a value that is 0 where something does not work, such as ``up``."""
    return Way(measured, value, "==", Number(0), given=given, sparing=sparing)


def counts(
    measured: str, value: Expression, given: Expression | None = None, sparing: Expression | None = None
) -> Way:
    """Return the way of a number of faults, of which one is too many."""
    return Way(measured, value, ">", Number(0), given=given, sparing=sparing)


def gone(measured: str, answers: Expression, was_listed: Expression, listed: Expression) -> tuple[Way, Way]:
    """Return the ways of a server to be missing while a run is running.

    Args:
        measured: What does not answer.
        answers: 0 for a server that does not answer.
        was_listed: 1 for each server that was a target of late.
        listed: The targets.
    """
    return (
        fails(measured, answers, RUN_LAST_IN_PROGRESS),
        Way(
            "left the list of targets",
            was_listed.unless(listed),
            "==",
            Number(1),
            given=RUN_IN_PROGRESS,
            sparing=RUNS_CHANGED,
        ),
    )


def _running(selector: str) -> Expression:
    return On("", Formula(f"max by (run) ({selector}) == 1"))


RUN_IN_PROGRESS = _running('rl_run_state{state="running"}')
"""To be put behind ``and``: while a run is running. Runs and servers share no label but perhaps `cluster`,
which users may set on some jobs only: joined by it, alerts on these would never fire."""

RUN_LAST_IN_PROGRESS = _running(f'last_over_time(rl_run_state{{state="running"}}[{LAST_KNOWN}])')
"""The same, as far as the exporter's last answer says."""

RUNS_CHANGED = On("", Formula(f'max by (run) (changes(rl_run_state{{state="running"}}[{SETTLED}])) > 0'))
"""To be put behind ``unless``: a run began or ended of late. Its servers come and go with it, and nothing
says which were whose."""
