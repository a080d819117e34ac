"""What a signal is read from: one key of a trainer, or a formula over several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

GIB = 1024.0**3
MS = 0.001
_OTHERS = re.compile(r"[\W_]+")
_MLFLOW_AT = re.compile(r"_at_(?=\d)")


@lru_cache(maxsize=16384)
def normal(name: str) -> str:
    """The form in which keys are compared: lower case, ``_`` for all but letters and digits.

    Writers spell one key in many ways: ``critic/score/mean`` is ``critic_score_mean`` in tables,
    ``mean@8`` is ``mean_at_8`` in MLflow, and rl-insight puts a prefix before everything.
    """
    plain = _OTHERS.sub("_", name.lower()).strip("_").removeprefix("rl_insight_monitor_")
    return _MLFLOW_AT.sub("_", plain)


@dataclass(frozen=True, slots=True)
class Key:
    """One way to read a signal.

    ``names`` are the keys it needs, all of them; ``pattern`` instead takes every key whose normal
    form matches as a whole, and which holds ``spelled`` (a pattern too) as it was logged: a normal
    form no longer tells where one part of a key ends. The ``formula`` makes one value of theirs, or
    ``None`` if they give none; without it the value is that of the one key. The result is multiplied
    by ``scale``.
    The key counts only in runs that logged one of ``when``, if any, and never one of ``unless``.
    """

    names: tuple[str, ...] = ()
    formula: Callable[..., float | None] | None = None
    scale: float = 1.0
    pattern: str = ""
    spelled: str = ""
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


Keys = Mapping[str, tuple["str | Key", ...]]
"""The keys of a framework: signal -> where it is read from, best first. Text is a key as it is."""


def scaled(name: str, scale: float) -> Key:
    """The key in another unit, or with the other sign."""
    return Key((name,), scale=scale)


def difference(minuend: str, subtrahend: str) -> Key:
    """What the first key is above the second."""
    return Key((minuend, subtrahend), lambda a, b: a - b)


def rest_of_one(name: str) -> Key:
    """The other share: one minus the key."""
    return Key((name,), lambda share: 1 - share)


def rate(amount: str, time: str) -> Key:
    """The first key divided by the second."""
    return Key((amount, time), lambda a, t: a / t if t else None)


def inverse(name: str, scale: float = 1.0) -> Key:
    """``scale`` divided by the key."""
    return Key((name,), lambda x: 1 / x if x else None, scale)


def total(*names: str, scale: float = 1.0) -> Key:
    """The sum of the keys."""
    return Key(names, lambda *numbers: sum(numbers), scale)


def unless_negative(name: str) -> Key:
    """The key, of which a negative value means "not reported"."""
    return Key((name,), lambda x: None if x < 0 else x)


def mean_of(pattern: str, spelled: str = "") -> Key:
    """The mean of all keys that match."""
    return Key(pattern=pattern, spelled=spelled, formula=lambda *numbers: sum(numbers) / len(numbers))


def joined(first: Keys, then: Keys) -> Keys:
    """Both tables as one; for a signal in both, the first one's keys take precedence."""
    names = dict.fromkeys((*first, *then))
    return {name: (*first.get(name, ()), *then.get(name, ())) for name in names}
