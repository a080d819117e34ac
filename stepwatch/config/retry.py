"""The section `retry` of config.yaml: which failures of a trainer `stepwatch run` retries, and how."""

from __future__ import annotations

import re
import signal
from typing import Annotated, Any, Literal, get_args

from stepwatch.schema.errors import Fault
from stepwatch.schema.failures import CLASSES
from stepwatch.schema.scalars import (
    FACTOR,
    ActionCount,
    Duration,
    PositiveSpan,
    ReceiverName,
    RunGlob,
    choice,
    number,
)
from stepwatch.schema.section import Checked, Section, default, needed, not_empty

Resume = Literal["auto", "none", "verl", "trl", "openrlhf"]


def _argument(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\s=*]+[= ]\*", value):
        return value
    raise Fault(
        "does not name an argument",
        expected='NAME=* or "--name *", where * stands for its value',
        fix='write for example "data.train_batch_size=*"',
    )


def _replacement(value: Any) -> str:
    factor = FACTOR.fullmatch(str(value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Fault("is not a value", expected='"/2", "*0.5" or the new value', fix="quote it")
    if factor and not float(factor[2]):
        raise Fault("has a factor of zero", expected='"/2", "*0.5" or the new value', fix="write another one")
    return str(value)


class RetryRule(Section):
    """What is done about some failures; conditions that are left out fit all."""

    failures: tuple[Annotated[str, Checked(choice(*CLASSES))], ...] = default(
        (), f"Failure classes, detected in the trainer's last output: {', '.join(CLASSES)} (docs/running.md)."
    )
    exit_codes: tuple[
        Annotated[int, Checked(number(1, 255, "an exit code from 1 to 255", whole=True))], ...
    ] = default((), "Exit codes of the trainer.")
    signals: tuple[Annotated[str, Checked(choice(*(each.name for each in signal.Signals)))], ...] = default(
        (), "Signals that killed the trainer, such as SIGKILL."
    )
    alerts: tuple[RunGlob, ...] = default(
        (),
        "Alerts for which `actions` stopped the trainer, as patterns: KLExplosion, KL*. Without this, a "
        "trainer that was stopped on request is not retried.",
    )
    action: Annotated[Literal["retry", "stop"], Checked(choice("retry", "stop"))] = default(
        "retry", "retry, or stop: no retry, and no later rule applies."
    )
    replace: (
        Annotated[
            dict[Annotated[str, Checked(_argument)], Annotated[str, Checked(_replacement)]],
            not_empty("one argument or more", "delete it, to retry as before"),
        ]
        | None
    ) = default(
        None,
        'Arguments to change: {"data.train_batch_size=*": "/2"}. The value is divided ("/2"), multiplied '
        '("*0.5") or replaced. Each further retry changes the last value. If the command has none of these '
        "arguments, there is no retry.",
    )


class RetryPolicy(Section):
    """A policy that `stepwatch run --retry NAME` follows."""

    name: ReceiverName = needed("The name for --retry; unique.")
    rules: Annotated[
        tuple[RetryRule, ...], not_empty("one rule or more", "write rules: [{failures: [network]}]")
    ] = needed(
        "The first rule that matches a failure decides. A failure that matches no rule is not retried; nor "
        "is a trainer that ended with exit code 0, or by Ctrl-C or a signal to the wrapper."
    )
    max_retries: ActionCount = default(3, "Maximum number of retries in total.")
    interval: PositiveSpan = default(
        Duration.parse("30s"),
        "How long to wait before the first retry, so that the last attempt's memory and ports are free "
        "again. Each further retry waits twice as long, up to 10m.",
    )
    resume: Annotated[Resume, Checked(choice(*get_args(Resume)))] = default(
        "auto",
        "The trainer whose resume argument a retry adds, so that it continues from the last checkpoint. "
        "auto: detected from the command line; none: no argument (docs/running.md).",
    )
