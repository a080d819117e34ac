"""What a signal is read from: one key of a trainer, or a formula over several, as the tables write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

SCALES = {"GiB": 1024.0**3, "ms": 0.001, "percent": 0.01}
"""Units of trainers, by name, in ours."""
WAYS: Mapping[str, tuple[int, Callable[..., float | None] | None]] = {
    "key": (1, None),
    "increase": (1, None),
    "one_minus": (1, lambda share: 1 - share),
    "inverse": (1, lambda x: 1 / x if x else None),
    "not_negative": (1, lambda x: None if x < 0 else x),
    "positive": (1, lambda x: None if x <= 0 else x),
    "percent": (1, lambda x: x / 100 if x > 1 else x),
    "difference": (2, lambda a, b: a - b),
    "ratio": (2, lambda a, b: a / b if b else None),
    "one_minus_ratio": (2, lambda a, b: 1 - a / b if b else None),
    "share": (2, lambda a, b: a / (a + b) if a + b else None),
    "sum": (2, lambda a, b: a + b),
    "mean_of": (0, lambda *numbers: sum(numbers) / len(numbers)),
    "sum_of": (0, lambda *numbers: sum(numbers)),
    "max_of": (0, lambda *numbers: max(numbers)),
    "min_of": (0, lambda *numbers: min(numbers)),
}
"""How one value is made of so many keys, or of all that match a pattern (0), by the name in the tables.

What is not ``not_negative`` or ``positive`` means "not reported"; what is ``percent`` is a share where it
is at most 1. ``increase`` is a counter's since the record before."""
_BESIDE = ("scale", "spelled", "unless", "when", "where", "zero_with")
_OTHERS = re.compile(r"[\W_]+")
_MLFLOW_AT = re.compile(r"_at_(?=\d)")
_CONDITION = re.compile(r"(\S.*?) (>|<=) (-?\d+(?:\.\d+)?)")


@lru_cache(maxsize=16384)
def normal(name: str) -> str:
    """The form in which keys are compared: lower case, ``_`` for all but letters and digits.

    Writers spell one key in many ways: ``critic/score/mean`` is ``critic_score_mean`` in tables,
    ``mean@8`` is ``mean_at_8`` in MLflow, and rl-insight puts a prefix before everything.
    """
    plain = _OTHERS.sub("_", name.lower()).strip("_").removeprefix("rl_insight_monitor_")
    return _MLFLOW_AT.sub("_", plain)


class Key(NamedTuple):
    """One way to read a signal, with all names in normal form.

    It needs all of ``names``; ``pattern`` instead takes every key whose normal form matches as a whole. Each
    holds ``spelled`` (a pattern too) as it was logged: a normal form no longer tells where one part of a key
    ends. The key counts only in runs that logged one of ``when``, if any, and never one of ``unless``, and in
    no record in which a key of ``where`` has a value beyond its limit. A record without the key means 0 if
    it has one of ``zero_with`` and the run logged the key before: the trainer leaves out a count of 0.
    """

    names: tuple[str, ...] = ()
    how: str = "key"
    scale: float = 1.0
    pattern: str = ""
    spelled: str = ""
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    where: tuple[str, str, float] | None = None
    zero_with: tuple[str, ...] = ()


Keys = Mapping[str, tuple[Key, ...]]
"""Signal -> where it is read from, best first."""


class KeyFault(ValueError):  # noqa: N818  (of a user's table, no failure)
    """Raised when an entry of a table is not a key: what is wrong with it, and what was expected."""

    def __init__(self, problem: str, expected: str) -> None:
        super().__init__(f"{problem}. Expected {expected}.")
        self.problem, self.expected = problem, expected


def keys_of(table: Mapping[str, Any]) -> Keys:
    """Return the signals of a table. Raises KeyFault."""
    return {signal: tuple(map(key_of, entries)) for signal, entries in table.items()}


def key_of(entry: Any) -> Key:
    """Return an entry, ``KEY`` or ``{how: KEYS, scale: ..., when: ...}``, as a key. Raises KeyFault."""
    entry = {"key": entry} if isinstance(entry, str) else entry
    ways = [each for each in WAYS if isinstance(entry, Mapping) and each in entry]
    if len(ways) != 1:
        raise KeyFault(
            "is not a key", f"a key as the trainer writes it, or {{one of {', '.join(WAYS)}: keys}}"
        )
    how = ways[0]
    if unknown := {*map(str, entry)} - {how, *_BESIDE}:
        raise KeyFault(f"has {min(unknown)!r} beside {how}", " or ".join(_BESIDE))
    scale = entry.get("scale", 1)
    scale = SCALES.get(scale, scale) if isinstance(scale, str) else scale
    if not isinstance(scale, (int, float)) or isinstance(scale, bool):
        raise KeyFault(f"has the scale {scale!r}", f"a number, or one of {', '.join(SCALES)}")
    names, wanted = _names(entry[how]), WAYS[how][0] or 1
    if len(names) != wanted:
        raise KeyFault(f"does not have what {how} needs", f"{wanted} key{'s' * (wanted > 1)}")
    pattern, spelled = "" if WAYS[how][0] else names[0], entry.get("spelled", "")
    try:
        re.compile(pattern), re.compile(spelled)
    except (re.error, TypeError) as problem:
        raise KeyFault(f"has a pattern that cannot be read ({problem})", "a regular expression") from None
    where = None
    if "where" in entry:
        text = entry["where"]
        found = _CONDITION.fullmatch(text) if isinstance(text, str) else None
        if not found:
            raise KeyFault(f"has the condition {text!r}", "KEY > NUMBER or KEY <= NUMBER")
        where = normal(found[1]), found[2], float(found[3])
    when, unless, zero_with = (
        tuple(map(normal, _names(entry.get(each, ())))) for each in ("when", "unless", "zero_with")
    )
    taken = () if pattern else tuple(map(normal, names))
    return Key(taken, how, float(scale), pattern, spelled, when, unless, where, zero_with)


def _names(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, (list, tuple)) and all(isinstance(each, str) and each.strip() for each in names):
        return tuple(names)
    raise KeyFault("has a key that is not text", "keys as the trainer writes them")


def joined(first: Keys, then: Keys) -> Keys:
    """Both tables as one; for a signal in both, the first one's keys take precedence."""
    names = dict.fromkeys((*first, *then))
    return {name: (*first.get(name, ()), *then.get(name, ())) for name in names}
