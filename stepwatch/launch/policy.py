"""The section of config.yaml about retries: when and how `stepwatch run --retry` retries a trainer."""

from __future__ import annotations

import re
import signal
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, model_validator

from stepwatch.launch.failures import CLASSES
from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.names import ReceiverName, to_re2
from stepwatch.schema.scalars import Duration, PositiveSpan, instead, one_of
from stepwatch.schema.section import Checked, Section, default, needed

Action = Literal["retry", "stop"]
Resume = Literal["auto", "none", "verl", "trl", "openrlhf"]
_SIGNALS = tuple(each.name for each in signal.Signals)
_FACTOR = re.compile(r"[/*]\s*(\d+(?:\.\d+)?)")


def _one_of(words: tuple[str, ...], what: str) -> Any:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise Fault(f"is not {what}", expected=one_of(words), fix=instead(value, words))

    return Checked(check)


def _whole(low: int, high: int, expected: str) -> Any:
    def check(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise Fault(f"is not {expected}", expected=expected, fix="write a whole number without quotes")

    return Checked(check)


def _factor(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 10:
        return value
    raise Fault("is not a factor", expected="a number from 1 to 10", fix="write 2, or 1 for equal intervals")


def _glob(value: Any) -> str:
    try:
        to_re2(value if isinstance(value, str) and value else "[")
    except ValueError:
        raise Fault(
            "is not a pattern of names", expected="an alert such as KLExplosion, or KL*", fix="quote it"
        ) from None
    return str(value)


def _argument(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\s=*]+[= ]\*", value):
        return value
    raise Fault(
        "does not name an argument",
        expected='NAME=* or "--name *", where * stands for its value',
        fix='write for example "data.train_batch_size=*"',
    )


def _replacement(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Fault("is not a value", expected='"/2", "*0.5" or the new value', fix="quote it")
    factor = _FACTOR.fullmatch(str(value))
    if factor and not float(factor[1]):
        raise Fault("has a factor of zero", expected='"/2", "*0.5" or the new value', fix="write another one")
    return str(value)


Alert = Annotated[str, Checked(_glob)]
FailureName = Annotated[str, _one_of(tuple(CLASSES), "a failure class")]
SignalName = Annotated[str, _one_of(_SIGNALS, "a signal")]
ExitCode = Annotated[int, _whole(1, 255, "an exit code from 1 to 255")]
Retries = Annotated[int, _whole(1, 100, "a whole number from 1 to 100")]
Factor = Annotated[float, Checked(_factor)]
Argument = Annotated[str, Checked(_argument)]
Replacement = Annotated[str, Checked(_replacement)]


def _changes_something(replace: dict[str, str]) -> dict[str, str]:
    if replace:
        return replace
    raise Fault("is empty", expected="one argument or more", fix="delete it, to retry as before")


class RetryRule(Section):
    """What is done about some failures; conditions that are left out fit all."""

    failures: tuple[FailureName, ...] = default(
        (),
        f"Failure classes, detected in the trainer's last output: {', '.join(CLASSES)} (docs/actions.md).",
    )
    exit_codes: tuple[ExitCode, ...] = default((), "Exit codes of the trainer.")
    signals: tuple[SignalName, ...] = default((), "Signals that killed the trainer, such as SIGKILL.")
    alerts: tuple[Alert, ...] = default(
        (),
        "Alerts for which `actions` stopped the trainer, as patterns: KLExplosion, KL*. Without this, a "
        "trainer that was stopped on request is not retried.",
    )
    action: Annotated[Action, _one_of(get_args(Action), "an action")] = default(
        "retry", "retry, or stop: no retry, and no later rule applies."
    )
    replace: Annotated[dict[Argument, Replacement], AfterValidator(_changes_something)] | None = default(
        None,
        'Arguments to change: {"data.train_batch_size=*": "/2"}. The value is divided ("/2"), multiplied '
        '("*0.5") or replaced. Each further retry changes the last value. If the command has none of these '
        "arguments, there is no retry.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RetryRule:
        if self.action == "stop" and self.replace:
            raise Fault(
                "has no effect without a retry",
                expected="action: retry, or no replace",
                fix="delete one of the two",
                at=("replace",),
                value=NOTHING,
            )
        return self


class RetryPolicy(Section):
    """A policy that `stepwatch run --retry NAME` follows."""

    name: ReceiverName = needed("The name for --retry; unique.")
    rules: tuple[RetryRule, ...] = needed(
        "The first rule that matches a failure decides. A failure that matches no rule is not retried; nor "
        "is a trainer that ended with exit code 0, or by Ctrl-C or a signal to the wrapper."
    )
    max_retries: Retries = default(3, "Maximum number of retries in total.")
    interval: PositiveSpan = default(
        Duration.parse("30s"),
        "How long to wait before the first retry, so that the last attempt's memory and ports are free "
        "again.",
    )
    backoff: Factor = default(2, "Each further interval is longer by this factor.")
    max_interval: PositiveSpan = default(
        Duration.parse("10m"), "The longest interval; the GPUs are idle during it."
    )
    resume: Annotated[Resume, _one_of(get_args(Resume), "a trainer")] = default(
        "auto",
        "The trainer whose resume argument a retry adds, so that it continues from the last checkpoint. "
        "auto: detected from the command line; none: no argument (docs/actions.md).",
    )

    @model_validator(mode="after")
    def _has_rules(self) -> RetryPolicy:
        if self.rules:
            return self
        raise Fault(
            "is empty",
            expected="one rule or more",
            fix="write rules: [{failures: [network]}]",
            at=("rules",),
            value=NOTHING,
        )
