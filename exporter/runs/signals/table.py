"""The table of one framework: signals, the normal forms of their keys, and how well it fits a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache

from exporter.runs.signals.candidates import may_be_measured
from exporter.runs.signals.keys import FRAMEWORKS, SELF_DESCRIBING
from exporter.runs.signals.keys.key import Key, Keys, joined, normal

Table = tuple[tuple[str, tuple[Key, ...]], ...]
"""Signals with what they are read from, best first; all names in normal form."""

Additions = tuple[tuple[str, tuple[str, ...]], ...]
"""A user's own keys: (signal, its keys), best first."""

HOME_MADE = "generic"
"""The table of home-made loops."""

_SETTINGS = frozenset({"epoch", "learning_rate", "critic_learning_rate", "kl_coefficient"})
"""Signals that stand in files of settings as well."""

LONGEST_KEY = 300
"""In characters; what is longer is text and no key."""

GUESSED = tuple(name for name in FRAMEWORKS if name not in SELF_DESCRIBING)
"""Frameworks that a log may turn out to be of."""


@lru_cache(maxsize=128)
def table(framework: str, additions: Additions = ()) -> Table:
    """The signals of one framework; additions come before its own keys."""
    keys: Keys = joined(dict(additions), FRAMEWORKS[framework].keys)
    return tuple((signal, tuple(map(_normalised, found))) for signal, found in keys.items())


@lru_cache(maxsize=256)
def completed(framework: str, additions: Additions, known: frozenset[str]) -> Table:
    """The table, with what home-made loops call the signals that are not ``known`` by it.

    Loops around a trainer's parts log under its names and under their own. A key that the framework
    has means what it means there.
    """
    own = table(framework, additions)
    taken = {name for _, keys in own for key in keys for name in key.names}
    others = {
        signal: tuple(key for key in keys if taken.isdisjoint(key.names))
        for signal, keys in table(HOME_MADE)
        if signal not in known
    }
    return tuple(joined(dict(own), others).items())  # type: ignore[arg-type]


def _normalised(key: str | Key) -> Key:
    if isinstance(key, str):
        return Key((normal(key),))
    names, when, unless = (tuple(map(normal, names)) for names in (key.names, key.when, key.unless))
    return replace(key, names=names, when=when, unless=unless)


def spellings(framework: str, keys: Iterable[str]) -> dict[str, str]:
    """Normal form -> key as it was logged; of two that look alike the first one counts."""
    logged = [key for key in keys if len(key) <= LONGEST_KEY]
    found: dict[str, str] = {}
    for key in logged:
        found.setdefault(normal(key), key)
    for prefix in FRAMEWORKS[framework].prefixes:
        for key in logged:
            if key.startswith(prefix):
                found.setdefault(normal(key[len(prefix) :]), key)
    for start, usual in FRAMEWORKS[framework].variants:
        for key in logged:
            if other := start.match(key):
                found.setdefault(normal(usual + key[other.end() :]), key)
    return found


def needed(key: Key, present: Mapping[str, str]) -> tuple[str, ...]:
    """The logged keys that this one is read from; none if some are missing."""
    if key.pattern:
        return tuple(
            raw
            for name, raw in present.items()
            if re.fullmatch(key.pattern, name) and re.search(key.spelled, raw)
        )
    try:
        return tuple([present[name] for name in key.names])
    except KeyError:
        return ()


def holds(key: Key, seen: AbstractSet[str]) -> bool:
    """Whether the key means this signal in a run that logged these names."""
    return (not key.when or not seen.isdisjoint(key.when)) and seen.isdisjoint(key.unless)


def carried(framework: str, keys: Iterable[str], additions: Additions = ()) -> frozenset[str]:
    """The signals of the framework that these keys carry."""
    present = spellings(framework, keys)
    seen = present.keys()
    return frozenset(
        signal
        for signal, found in table(framework, additions)
        if any(holds(key, seen) and needed(key, present) for key in found)
    )


@lru_cache(maxsize=256)
def measurements(keys: tuple[str, ...]) -> int:
    """How many signals that are measured some framework finds among these keys.

    One, if none does but a key looks like a reward, a KL divergence or an entropy: the user of the run
    learns how to name it.
    """
    known, found = _all_names(), 0
    # asked for every line of text that could be the head of a table: a quick look first
    short = (key for key in keys if len(key) <= LONGEST_KEY)
    if any(normal(key) in known or normal(key.partition("/")[2]) in known for key in short):
        found = max(len(carried(framework, keys) - _SETTINGS) for framework in GUESSED)
    return found or int(any(map(may_be_measured, keys)))


@lru_cache(maxsize=1)
def _all_names() -> frozenset[str]:
    tables = (table(framework) for framework in GUESSED)
    return frozenset(name for found in tables for _, keys in found for key in keys for name in key.names)
