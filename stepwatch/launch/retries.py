"""Whether, when and with which arguments a failed trainer is started again."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from exporter.runs.files.launch import Retry
from exporter.secret_shapes import masked
from stepwatch.launch import layouts
from stepwatch.launch.record import End
from stepwatch.schema.scalars import FACTOR, fits

if TYPE_CHECKING:
    from stepwatch.config.retry import RetryPolicy, RetryRule


LONGEST_SECONDS = 600
"""Up to which waits double: until then a network or a disk may be back, and the GPUs are idle meanwhile."""


class Plan(NamedTuple):
    """A retry, its command, and the changes of that and the whole in words."""

    retry: Retry
    command: Sequence[str]
    changes: Sequence[str]
    text: str


class Retries:
    """The retries of one call of the wrapper, by a policy."""

    def __init__(self, policy: RetryPolicy, command: Sequence[str], *, dry: bool) -> None:
        self._policy, self._command, self._dry = policy, list(command), dry
        self._seen: set[tuple[str, int | None, tuple[str, ...]]] = set()
        self._done = 0

    def after(self, end: End) -> Plan | str:
        """Return the retry after an attempt, or why there is none; empty if no message is needed."""
        if not end.status and not end.stopped:
            return ""
        if end.interrupted:
            return f"no retry: ended by {end.interrupted}"
        name, most, done = self._policy.name, self._policy.max_retries, self._done
        rule = next((each for each in self._policy.rules if _applies(each, end)), None)
        if rule is None or rule.action == "stop":
            says = "no rule for" if rule is None else "a rule to stop after"
            return f"no retry: policy {name} has {says}: {end.cause}"
        if done >= most:
            used = "that one was used" if most == 1 else "all were used"
            return f"no further retry: policy {name} allows {most} (max_retries), and {used}"
        command, changes = replaced(self._command, rule.replace or {})
        after = "before the first step" if end.step is None else f"after step {end.step}"
        attempt = end.alert or end.cause, end.step, tuple(self._command)
        if not changes and (rule.replace or attempt in self._seen):
            cannot = f"policy {name} cannot change {', '.join(rule.replace or ())} further"
            again = f"these arguments failed {after} before, by {end.cause}"
            return f"no retry: {cannot if rule.replace else again}"
        self._seen.add(attempt)
        self._command, self._done = command, done + 1
        first = self._policy.interval.seconds
        wait = min(first * 2**done, max(first, LONGEST_SECONDS))
        command, words = resuming(command, self._policy.resume)
        changes += words
        verb = "Dry run: retry" if self._dry else "Retry"
        text = (
            f"ended {after}, by {end.cause}. {verb} {done + 1} of {most} "
            f"in {wait:g} s{', with ' * bool(changes)}{'; '.join(changes)}."
        )
        return Plan(Retry(done + 1, most, end.cause, time.time() + wait), command, changes, text)


def _applies(rule: RetryRule, end: End) -> bool:
    if end.stopped or rule.alerts:  # a requested stop is not a failure: only an explicit rule retries it
        return end.stopped is not None and any(fits(pattern, end.alert) for pattern in rule.alerts)
    return (
        (not rule.failures or (end.failure is not None and end.failure.name in rule.failures))
        and (not rule.exit_codes or end.exit_code in rule.exit_codes)
        and (not rule.signals or end.signal in rule.signals)
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
    factor = FACTOR.fullmatch(new)
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


def resuming(command: Sequence[str], trainer: str) -> tuple[list[str], list[str]]:
    """Add the argument by which a trainer resumes from its last checkpoint; returns the change too."""
    named = trainer != "auto"
    if not named:
        found = (each for each, shape in _KNOWN.items() if any(map(shape.search, command)))
        trainer = next(found, "none")
    if trainer == "verl":
        key, value = "trainer.resume_mode", "auto"
        if not any(word.lstrip("+").startswith(f"{key}=") for word in command):
            return [*command, f"{key}={value}"], [f"{key}={value}"]
        return replaced(command, {f"{key}=*": value}) if named else (list(command), [])
    if trainer == "openrlhf" and "--load_checkpoint" not in command:
        return [*command, "--load_checkpoint"], ["--load_checkpoint"]
    folder = layouts.folder(command, Path()) if trainer == "trl" else None
    whole = [each for each in layouts.found(folder) if layouts.is_whole(each)] if folder else []
    if whole:
        option, newest = "--resume_from_checkpoint", str(whole[-1].path)
        if any(word.partition("=")[0] == option for word in command):
            return replaced(command, {f"{option} *": newest})
        return [*command, option, newest], [f"{option} {quote(newest)}"]
    return list(command), []
