"""The `actions` section: what is done about runs, and its guard rails."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, model_validator

from exporter.bridge.audit import STOP
from stepwatch.alerts.table import Table
from stepwatch.schema.errors import NOTHING, Fault, Faults
from stepwatch.schema.scalars import (
    ActionCount,
    ActionStep,
    Duration,
    PositiveSpan,
    RunGlob,
    SentSeverity,
    Span,
    Switch,
    instead,
    one_of,
)
from stepwatch.schema.section import Section, default, needed


class Policy(Section):
    """What is done when an alert about a run has been firing for a while."""

    on: str = needed("The name of the alert.")
    severity: SentSeverity | None = default(None, "The severity of the alert. null: any.")
    for_: Span = Field(
        default=Duration.parse("2m"),
        alias="for",
        description="How long the alert must have been firing with its condition true: the time for which "
        "notify.keep_firing_for extends it does not count.",
    )
    runs: RunGlob = default("*", "A pattern of run names: * any text, ? any character, [ab] one of these.")
    do: tuple[ActionStep, ...] = needed(
        "The steps in order. evidence: collect an archive. notify: send the result of the action. stop: "
        "announce it, then send SIGTERM."
    )
    kill_after: PositiveSpan | None = default(
        None, "Send SIGKILL this long after stop if the trainer still runs. null: never."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Policy:
        if faults := [*self._steps(), *self._kill()]:
            raise Faults(faults)
        return self

    def _steps(self) -> Iterator[Fault]:
        says = expected = fix = ""
        if not self.do:
            says, expected, fix = "is empty", "one step or more", "write [evidence, notify]"
        elif len(set(self.do)) < len(self.do):
            says, expected, fix = "names a step twice", "each step once", "delete one of the two"
        elif STOP in self.do[:-1]:
            says, expected = "has steps after stop", "stop as the last step"
            fix = "write evidence and notify before stop: they are about the run as it was"
        if says:
            yield Fault(says, expected=expected, fix=fix, at=("do",), value=NOTHING)

    def unknown(self, table: Table) -> Iterator[Fault]:
        """Yield a fault if the table has no such alert about runs, or it has another severity."""
        alerts = [alert for alert in table.alerts if alert.name == self.on]
        severities = {alert.severity for alert in alerts}  # None where its block says it
        if not any(alert.subject == "run" for alert in alerts):
            of_runs = [alert.name for alert in table.alerts if alert.subject == "run"]
            yield Fault(
                "is not an alert about runs" if alerts else "is not an alert",
                expected="an alert about runs that docs/runbook.md or alerts.d has, such as KLExplosion",
                fix="name one about the run itself" if alerts else instead(self.on, of_runs),
                at=("on",),
                value=self.on,
            )
        elif self.severity is not None and not {self.severity, None} & severities:
            has = one_of(sorted(filter(None, severities)))
            yield Fault(
                f"is not a severity of {self.on}",
                expected=f"{has}, or null for any",
                fix=f"write {has}, or delete it",
                at=("severity",),
                value=self.severity,
            )

    def _kill(self) -> Iterator[Fault]:
        if self.kill_after is not None and STOP not in self.do:
            yield Fault(
                "is set without stop",
                expected="null, or stop among the steps",
                fix="delete it, or add stop to do",
                at=("kill_after",),
                value=str(self.kill_after),
            )


class Actions(Section):
    """What the bridge does about runs that `stepwatch run` started; nothing without policies."""

    dry_run: Switch = default(True, "true: log and announce every action, but execute none.")
    veto: Span = default(
        Duration.parse("5m"),
        "The time between the announcement of a stop and the stop. A silence of the alert in it is a veto. "
        "0s: none.",
    )
    per_day: ActionCount = default(3, "Maximum number of stops per run within 24 h.")
    policies: tuple[Policy, ...] = default(
        (),
        "Which action follows which alert. The first policy that matches an alert applies; an alert "
        "causes one action in each attempt of a run.",
    )

    @property
    def enabled(self) -> bool:
        """Whether there are policies."""
        return bool(self.policies)

    @property
    def triggers(self) -> tuple[tuple[str, str], ...]:
        """The alerts that policies are about, each once: name, and severity or an empty text for any."""
        every = dict.fromkeys((policy.on, policy.severity or "") for policy in self.policies)
        return tuple(each for each in every if not each[1] or (each[0], "") not in every)
