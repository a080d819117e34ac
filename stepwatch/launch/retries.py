"""Whether, when and with which arguments a failed trainer is retried; the section of config.yaml for it."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, get_args

from pydantic import model_validator

from exporter.runs.files.launch import Answer
from exporter.secret_shapes import masked
from stepwatch.launch.failures import CLASSES, Failure, Outcome
from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.scalars import Duration, PositiveSpan, ReceiverName, fits, instead, one_of, to_re2
from stepwatch.schema.section import Checked, Section, default, needed, not_empty

Action = Literal["retry", "stop"]
Resume = Literal["auto", "none", "verl", "trl", "openrlhf"]
_SIGNALS = tuple(each.name for each in signal.Signals)
_FACTOR = re.compile(r"([/*])\s*(\d+(?:\.\d+)?)")


def _one_of(words: tuple[str, ...], what: str) -> Any:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise Fault(f"is not {what}", expected=one_of(words), fix=instead(value, words))

    return Checked(check)


def _whole(high: int, expected: str) -> Any:
    def check(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= high:
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
    known = isinstance(value, str | int | float) and not isinstance(value, bool)
    factor = _FACTOR.fullmatch(str(value))
    zero = factor and not float(factor[2])
    if known and not zero:
        return str(value)
    raise Fault(
        "has a factor of zero" if known else "is not a value",
        expected='"/2", "*0.5" or the new value',
        fix="write another one" if known else "quote it",
    )


Alert = Annotated[str, Checked(_glob)]
FailureName = Annotated[str, _one_of(tuple(CLASSES), "a failure class")]
SignalName = Annotated[str, _one_of(_SIGNALS, "a signal")]
ExitCode = Annotated[int, _whole(255, "an exit code from 1 to 255")]
MostRetries = Annotated[int, _whole(100, "a whole number from 1 to 100")]
Factor = Annotated[float, Checked(_factor)]
Argument = Annotated[str, Checked(_argument)]
Replacement = Annotated[str, Checked(_replacement)]
Replacements = Annotated[
    dict[Argument, Replacement], not_empty("one argument or more", "delete it, to retry as before")
]


class RetryRule(Section):
    """What is done about some failures; conditions that are left out fit all."""

    failures: tuple[FailureName, ...] = default(
        (), f"Failure classes, detected in the trainer's last output: {', '.join(CLASSES)} (docs/actions.md)."
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
    replace: Replacements | None = default(
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
    max_retries: MostRetries = default(3, "Maximum number of retries in total.")
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


@dataclass(frozen=True)
class End:
    """How an attempt ended; ``interrupted`` is the signal to the wrapper, or ``Ctrl-C``, if there was one."""

    outcome: Outcome
    failure: Failure | None = None
    stopped: Answer | None = None
    interrupted: str = ""
    step: int | None = None

    @property
    def cause(self) -> str:
        """Why it ended, as users see it."""
        if self.stopped:
            return self.stopped.cause
        return self.failure.text if self.failure else self.outcome.text

    @property
    def alert(self) -> str:
        """The alert on which it was stopped, without the id of the action; empty if there is none."""
        return self.stopped.why.partition(" ")[0] if self.stopped else ""


@dataclass(frozen=True)
class Plan:
    """A retry: the ``number``-th ``of``, for a ``cause``, in ``wait`` seconds, with ``changes`` in words."""

    number: int
    of: int
    cause: str
    command: Sequence[str]
    changes: Sequence[str]
    wait: float


class Retries:
    """The retries of one call of the wrapper, by a policy."""

    def __init__(self, policy: RetryPolicy, command: Sequence[str]) -> None:
        self._policy = policy
        self._command = list(command)
        self._seen: set[tuple[str, int | None, tuple[str, ...]]] = set()
        self._done = 0

    def after(self, end: End) -> Plan | str:
        """Return the retry after an attempt, or why there is none; empty if no message is needed."""
        if not end.outcome.status and not end.stopped:
            return ""
        if end.interrupted:
            return f"no retry: ended by {end.interrupted}"
        rule = next((each for each in self._policy.rules if _applies(each, end)), None)
        policy = f"policy {self._policy.name}"
        if rule is None or rule.action == "stop":
            says = "no rule for" if rule is None else "a rule to stop after"
            return f"no retry: {policy} has {says}: {end.cause}"
        if self._done >= self._policy.max_retries:
            allowed = self._policy.max_retries
            used = "that one was used" if allowed == 1 else "all were used"
            return f"no further retry: {policy} allows {allowed} (max_retries), and {used}"
        return self._changed(rule, end)

    def _changed(self, rule: RetryRule, end: End) -> Plan | str:
        """Return the retry with what a rule changes; why there is none if that failed already."""
        command, changes = replaced(self._command, rule.replace or {})
        if rule.replace and not changes:
            return f"no retry: policy {self._policy.name} cannot change {', '.join(rule.replace)} further"
        attempt = end.alert or end.cause, end.step, tuple(self._command)
        if attempt in self._seen and not changes:
            at = "before the first step" if end.step is None else f"after step {end.step}"
            return f"no retry: these arguments failed {at} before, by {end.cause}"
        self._seen.add(attempt)
        policy = self._policy
        self._command, self._done = command, self._done + 1
        longer = policy.interval.seconds * policy.backoff ** (self._done - 1)
        resumed, words = resuming(command, policy.resume)
        wait = min(longer, policy.max_interval.seconds)
        return Plan(self._done, policy.max_retries, end.cause, resumed, [*changes, *words], wait)


def _applies(rule: RetryRule, end: End) -> bool:
    if end.stopped:  # a requested stop is not a failure: only an explicit rule retries it
        return any(fits(pattern, end.alert) for pattern in rule.alerts)
    if rule.alerts:
        return False
    code, number = end.outcome.exit_code, end.outcome.signal_name
    return (
        (not rule.failures or (end.failure is not None and end.failure.name in rule.failures))
        and (not rule.exit_codes or code in rule.exit_codes)
        and (not rule.signals or number in rule.signals)
    )


def replaced(command: Sequence[str], replace: dict[str, str]) -> tuple[list[str], list[str]]:
    """Change arguments by ``NAME=*`` or ``--name *``, either way of writing; returns the changes in words."""
    words, changes = list(command), []
    for pattern, new in replace.items():
        name = pattern[:-2]
        for at, word in enumerate(words):
            key, equals, value = word.partition("=")
            if equals and key.lstrip("+") == name.lstrip("+"):  # Hydra's +key=value adds a key
                words[at] = f"{key}={_value(value, new)}"
            elif word == name and at + 1 < len(words):
                at, value = at + 1, words[at + 1]  # noqa: PLW2901
                words[at] = _value(value, new)
            else:
                continue
            if words[at] != command[at]:
                changes.append(f"{name}: {masked(value)} -> {masked(_value(value, new))}")
    return words, changes


def _value(old: str, new: str) -> str:
    """Return the new value of an argument; the old one if it cannot be calculated."""
    factor = _FACTOR.fullmatch(new)
    if not factor:
        return new
    by = 1 / float(factor[2]) if factor[1] == "/" else float(factor[2])
    if re.fullmatch(r"-?\d+", old):
        value = int(int(old) * by)
        return str(value) if value else old
    try:
        return f"{float(old) * by:.12g}"
    except ValueError:
        return old


_KNOWN = {
    "verl": re.compile(r"(?:^|[./])verl(?:[./]|$)|^\+{0,2}actor_rollout_ref\."),
    "openrlhf": re.compile(r"(?:^|[./])openrlhf(?:[./]|$)"),
    "trl": re.compile(r"(?:^|[./])trl(?:[./]|$)|^--resume_from_checkpoint(?:=|$)"),
}
"""How the command lines of trainers are recognised, by a word of them."""
_SETTINGS = {"verl": ("trainer.resume_mode", "auto")}


def resuming(command: Sequence[str], trainer: str) -> tuple[list[str], list[str]]:
    """Add the argument by which a trainer resumes from its last checkpoint; returns the change too."""
    named = trainer != "auto"
    if not named:
        found = (each for each, shape in _KNOWN.items() if any(map(shape.search, command)))
        trainer = next(found, "none")
    if trainer in _SETTINGS:
        key, value = _SETTINGS[trainer]
        given = any(word.lstrip("+").startswith(f"{key}=") for word in command)
        if not given:
            return [*command, f"{key}={value}"], [f"{key}={value}"]
        return replaced(command, {f"{key}=*": value}) if named else (list(command), [])
    if trainer == "openrlhf" and "--load_checkpoint" not in command:
        return [*command, "--load_checkpoint"], ["--load_checkpoint"]
    if trainer == "trl" and (checkpoint := _newest(command)):
        option = "--resume_from_checkpoint"
        if any(word.partition("=")[0] == option for word in command):
            return replaced(command, {f"{option} *": checkpoint})
        return [*command, option, checkpoint], [f"{option} {quote(checkpoint)}"]
    return list(command), []


def _newest(command: Sequence[str]) -> str:
    """The newest complete checkpoint in the ``--output_dir`` of transformers' trainers; empty if none."""
    for at, word in enumerate(command):
        key, equals, value = word.partition("=")
        if key in ("--output_dir", "--output-dir"):
            folder = Path(value if equals else "".join(command[at + 1 : at + 2]))
            steps = {
                int(found[1]): path
                for path in (folder.iterdir() if folder.is_dir() else ())
                if (found := re.fullmatch(r"checkpoint-(\d+)", path.name))
                # Written after the weights.
                and (path / "trainer_state.json").is_file()
            }
            return str(steps[max(steps)]) if steps else ""
    return ""
