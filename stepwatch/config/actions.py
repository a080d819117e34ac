"""The `actions` section: what the circuit breaker does about runs, and its guard rails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, model_validator

from exporter.actions.policy import CHECKPOINT, DISRUPTIVE
from stepwatch.alerts.catalogue import TABLE
from stepwatch.schema.errors import NOTHING, Fault, Faults
from stepwatch.schema.path_types import FolderOrGlob, ServerUrl
from stepwatch.schema.scalars import (
    ActionCount,
    ActionStep,
    CheckpointSignal,
    Duration,
    PositiveSpan,
    RunGlob,
    SentSeverity,
    Span,
    Switch,
    instead,
    one_of,
)
from stepwatch.schema.section import Checked, Section, default, needed

_SEVERITIES = {
    name: {alert.severity for alert in TABLE if alert.name == name}
    for name in (alert.name for alert in TABLE if alert.subject == "run")
}
"""Of each alert about runs; ``None`` where its block says it."""


def _alert(value: Any) -> str:
    if value in _SEVERITIES:
        return str(value)
    known = value in {alert.name for alert in TABLE}
    raise Fault(
        "is not an alert about runs" if known else "is not an alert",
        expected="an alert about runs that docs/runbook.md lists, such as KLExplosion",
        fix="name one about the run itself" if known else instead(value, _SEVERITIES),
    )


AlertName = Annotated[str, Checked(_alert)]


class Policy(Section):
    """What is done when an alert about a run has been firing for a while."""

    on: AlertName = needed("The name of the alert.")
    severity: SentSeverity | None = default(None, "The severity of the alert. null: any.")
    for_: Span = Field(
        default=Duration.parse("2m"),
        alias="for",
        description="How long the alert must have been firing with its condition true: the time for which "
        "notify.keep_firing_for extends it does not count.",
    )
    runs: RunGlob = default("*", "A pattern of run names: * any text, ? any character, [ab] one of these.")
    do: tuple[ActionStep, ...] = needed(
        "The steps in order. evidence: collect an archive. notify: send the result of the action; the next "
        "three are always announced. checkpoint: send checkpoint_signal, and wait for a new complete "
        "checkpoint. pause: send SIGSTOP, which trips NCCL timeouts. stop: send SIGTERM."
    )
    kill_after: PositiveSpan | None = default(
        None, "Send SIGKILL this long after stop if the trainer still runs. null: never."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Policy:
        if faults := [*self._steps(), *self._severity(), *self._kill()]:
            raise Faults(faults)
        return self

    def _steps(self) -> Iterator[Fault]:
        says = expected = fix = ""
        changes = [step for step in self.do if step in DISRUPTIVE and step != CHECKPOINT]
        last = [CHECKPOINT] * (CHECKPOINT in self.do) + changes
        if not self.do:
            says, expected, fix = "is empty", "one step or more", "write [evidence, notify]"
        elif len(set(self.do)) < len(self.do):
            says, expected, fix = "names a step twice", "each step once", "delete one of the two"
        elif len(changes) > 1:
            says, expected, fix = (
                "pauses and stops one run",
                "pause or stop",
                "delete one of the two: a paused trainer cannot react to SIGTERM",
            )
        elif last and [*self.do][-len(last) :] != last:
            says, expected, fix = (
                f"has steps after {last[0]}",
                f"{' and then '.join(last)} as the last step" + "s" * (len(last) - 1),
                f"write evidence and notify before {last[0]}: they are about the run as it was",
            )
        if says:
            yield Fault(says, expected=expected, fix=fix, at=("do",), value=NOTHING)

    def _severity(self) -> Iterator[Fault]:
        known = _SEVERITIES[self.on]
        if self.severity is not None and not {self.severity, None} & known:
            has = one_of(sorted(filter(None, known)))
            yield Fault(
                f"is not a severity of {self.on}",
                expected=f"{has}, or null for any",
                fix=f"write {has}, or delete it",
                at=("severity",),
                value=self.severity,
            )

    def _kill(self) -> Iterator[Fault]:
        if self.kill_after is not None and "stop" not in self.do:
            yield Fault(
                "is set without stop",
                expected="null, or stop among the steps",
                fix="delete it, or add stop to do",
                at=("kill_after",),
                value=str(self.kill_after),
            )


class ActionTarget(Section):
    """What runs are reached by that `stepwatch run` did not start."""

    runs: RunGlob = needed("A pattern of run names; the first entry that matches applies.")
    pid_file: FolderOrGlob | None = default(
        None,
        "A file with the process id of a process group's leader, written when the process started: `setsid "
        "python train.py & echo $! > FILE`. Not in containers.",
    )
    ray_job: str | None = Field(
        default=None, description="The submission id of a Ray job; the step stop runs `ray job stop`."
    )
    dashboard: ServerUrl = default("http://127.0.0.1:8265", "The address of Ray's dashboard, for ray_job.")

    @model_validator(mode="after")
    def _one(self) -> ActionTarget:
        if (self.pid_file is None) == (self.ray_job is None):
            raise Fault(
                "names " + ("no way to reach a run" if self.pid_file is None else "two things"),
                value=NOTHING,
                expected="pid_file or ray_job, and not both",
                fix="write one of them",
            )
        return self


class Actions(Section):
    """What the circuit breaker does; without policies it does not run."""

    dry_run: Switch = default(True, "true: log and announce every action, but execute none.")
    veto: Span = default(
        Duration.parse("5m"),
        "The time between the announcement of checkpoint, pause or stop and the step, in which a person can "
        "open the link and veto. 0s: none.",
    )
    per_day: ActionCount = default(
        3,
        "Maximum number of actions per run within 24 h that have it save a checkpoint, pause it or stop it.",
    )
    cooldown: Span = default(
        Duration.parse("30m"),
        "After an action on a run, or its veto, no further action on this run for this long.",
    )
    checkpoint_signal: CheckpointSignal | None = default(
        None,
        "The signal on which the trainer's own handler saves a checkpoint: SIGUSR1 or SIGUSR2. null: the "
        "step checkpoint is refused.",
    )
    checkpoint_within: PositiveSpan = default(
        Duration.parse("10m"),
        "How long to wait for that checkpoint; after this time the next step follows without it.",
    )
    policies: tuple[Policy, ...] = default(
        (),
        "Which action follows which alert. The first policy that matches an alert applies; an alert "
        "causes one action.",
    )
    targets: tuple[ActionTarget, ...] = default(
        (),
        "How to reach runs that `stepwatch run` did not start; without an entry no action on them is "
        "possible.",
    )

    @model_validator(mode="after")
    def _can_save(self) -> Actions:
        for number, policy in enumerate(self.policies):
            if CHECKPOINT in policy.do and self.checkpoint_signal is None:
                raise Fault(
                    "has checkpoint without a signal for it",
                    expected="checkpoint_signal, on which the trainer saves",
                    fix="set actions.checkpoint_signal: SIGUSR1 and have the trainer handle it "
                    "(docs/actions.md), or delete checkpoint",
                    at=("policies", number, "do"),
                    value=NOTHING,
                )
        return self

    @property
    def enabled(self) -> bool:
        """Whether the circuit breaker runs."""
        return bool(self.policies)

    @property
    def triggers(self) -> tuple[tuple[str, str], ...]:
        """The alerts that policies are about, each once: name, and severity or an empty text for any."""
        every = dict.fromkeys((policy.on, policy.severity or "") for policy in self.policies)
        return tuple(each for each in every if not each[1] or (each[0], "") not in every)
