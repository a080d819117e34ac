"""Reading the records of one run: which framework's keys they have, and what these mean."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from exporter.runs.signals.key import Key, Keys, joined, normal
from exporter.runs.signals.record import AXES, number
from exporter.runs.signals.tables import frameworks
from exporter.runs.stats.catalogue import ZERO_MEANS_NOT_MEASURED

Table = tuple[tuple[str, tuple[Key, ...]], ...]
"""Signals with what they are read from, best first; all names in normal form."""
Additions = tuple[tuple[str, tuple[Key, ...]], ...]  # A user's own keys: (signal, its keys), best first
HOME_MADE = "generic"  # the table of home-made loops
_SETTINGS = frozenset({"epoch", "learning_rate", "critic_learning_rate", "kl_coefficient"})
"""Signals that stand in files of settings as well."""
LONGEST_KEY = 300  # in characters; what is longer is text and no key


@lru_cache(maxsize=1)
def guessed() -> tuple[str, ...]:
    """Frameworks that a log may turn out to be of."""
    return tuple(name for name, each in frameworks().items() if each.guessed)


@lru_cache(maxsize=128)
def table(framework: str, additions: Additions = ()) -> Table:
    """The signals of one framework; additions come before its own keys."""
    return tuple(joined(dict(additions), frameworks()[framework].keys).items())


@lru_cache(maxsize=256)
def completed(framework: str, additions: Additions, known: frozenset[str]) -> Table:
    """The table, with home-made loops' names of signals that are not ``known`` by it."""
    own = table(framework, additions)
    taken = {name for _, keys in own for key in keys for name in key.names}
    others = {
        signal: tuple(key for key in keys if taken.isdisjoint(key.names))
        for signal, keys in table(HOME_MADE)
        if signal not in known
    }
    return tuple(joined(dict(own), others).items())


def spellings(framework: str, keys: Iterable[str]) -> dict[str, str]:
    """Normal form -> key as it was logged; of two that look alike the first one counts."""
    logged = [key for key in keys if len(key) <= LONGEST_KEY]
    found: dict[str, str] = {}
    for key in logged:
        found.setdefault(normal(key), key)
    for prefix in frameworks()[framework].prefixes:
        for key in logged:
            if key.startswith(prefix):
                found.setdefault(normal(key[len(prefix) :]), key)
    for start, usual in frameworks()[framework].variants:
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
        found = tuple([present[name] for name in key.names])
    except KeyError:
        return ()
    if key.spelled and not all(re.search(key.spelled, raw) for raw in found):
        return ()
    return found


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


REWARD = frozenset({"reward", "rewards", "rew", "score", "scores", "return", "returns"})
KL = frozenset({"kl", "kld", "kls", "kldiv"})
ENTROPY = frozenset({"entropy", "entropies"})
"""Words of keys that look like a reward, a KL divergence or an entropy, whatever their framework."""
SUCCESS = frozenset({"acc", "correct", "pass", "passed", "solve", "solved", "success", "successes", "win"})
SHARES = frozenset({"frac", "fraction", "ratio", "rate", "share"})
"""What trainers of one's own call a reward of 0 or 1, and its mean."""
_TELLING = REWARD - {"score", "scores", "return", "returns"} | KL | ENTROPY
"""Words that stand in no table but that of a training: others measure scores and lengths as well."""


def words_of(key: str) -> frozenset[str]:
    """The words that a key is made of."""
    return frozenset(normal(key).split("_"))


class Mapped(NamedTuple):
    """The keys that config.yaml maps to signals: JSON lines with one of them are a trainer's."""

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    @staticmethod
    def of(keys: Keys) -> Mapped:
        """Return the keys of all signals."""
        every = [key for each in keys.values() for key in each]
        names = frozenset(name for key in every for name in key.names)
        return Mapped(names, tuple(key.pattern for key in every if key.pattern))


NONE_MAPPED = Mapped()


@lru_cache(maxsize=256)
def measurements(keys: tuple[str, ...], mapped: Mapped = NONE_MAPPED) -> int:
    """How many measured signals some framework finds among these keys; 1 if a key only looks like one."""
    known, found = _all_names(), 0
    # asked for every line of text that could be the head of a table: a quick look first
    short = (key for key in keys if len(key) <= LONGEST_KEY)
    if any(normal(key) in known or normal(key.partition("/")[2]) in known for key in short):
        found = max(len(carried(framework, keys) - _SETTINGS) for framework in guessed())
    return found or int(any(may_be_measured(key, mapped) for key in keys))


def may_be_measured(key: str, mapped: Mapped = NONE_MAPPED) -> bool:
    """Whether this key, which is no word of a sentence, measures RL in a log that no table fits."""
    form, words = normal(key), words_of(key)
    if form in mapped.names or any(re.fullmatch(pattern, form) for pattern in mapped.patterns):
        return True
    telling = not words.isdisjoint(_TELLING) or not (words.isdisjoint(SUCCESS) or words.isdisjoint(SHARES))
    return " " not in key and key.count("/") < 2 and telling


@lru_cache(maxsize=1)
def _all_names() -> frozenset[str]:
    tables = (table(framework) for framework in guessed())
    return frozenset(name for found in tables for _, keys in found for key in keys for name in key.names)


Part = tuple[str, str]  # A signal, and the name of one of its parts
_AS_WRITTEN = frozenset({float, int, str})  # Types whose values are nearly always numbers; a boolean is none


class BoundKey(NamedTuple):
    """A key of the table, bound to how its names are spelled here; ``gathered``: as many as matched.

    ``counter``: the value is a total, whose increase is the signal. ``where`` is a key that is logged here,
    with the limit that its value must keep.
    """

    keys: tuple[str, ...]
    formula: Callable[..., float | None] | None
    scale: float = 1.0
    gathered: bool = False
    counter: bool = False
    where: tuple[str, str, float] | None = None

    @property
    def plain(self) -> bool:
        """Whether the signal is the key's value, whatever that is."""
        return self.formula is None and self.where is None

    def value(self, values: Mapping[str, Any]) -> float | None:
        """The signal's value; ``None`` if something that it needs is not a number."""
        if self.where is not None:
            key, sign, limit = self.where
            at = number(values[key])
            if at is not None and (at > limit) != (sign == ">"):
                return None
        numbers = [number(values[key]) for key in self.keys]
        if any(found is None for found in numbers):
            return None
        found = self.formula(*numbers) if self.formula else numbers[0]
        return None if found is None else found * self.scale


def left_out(key: Key, present: Mapping[str, str]) -> bool:
    """Whether a record that lacks the key would have it if it were not 0."""
    return not present.keys().isdisjoint(key.zero_with)


def _zero() -> float:
    return 0.0


Name = TypeVar("Name")


def bound(
    table: Iterable[tuple[Name, tuple[Key, ...]]], present: Mapping[str, str], seen: AbstractSet[str]
) -> dict[Name, tuple[BoundKey, ...]]:
    """What each signal of the table can be read from in records with these keys, best first.

    ``seen`` are the normal forms of all keys that the run logged so far.
    """
    sources = {}
    for signal, candidates in table:
        read, zero = [], []
        for key in candidates:
            if not holds(key, seen):
                continue
            if keys := needed(key, present):
                at = key.where and present.get(key.where[0])
                where = (at, *key.where[1:]) if key.where and at else None
                counter = key.how == "increase"
                read.append(BoundKey(keys, key.formula, key.scale, bool(key.pattern), counter, where))
            elif (
                key.how != "increase"
                and left_out(key, present)
                and needed(replace(key, spelled=""), {name: name for name in seen})
            ):
                zero.append(BoundKey((), _zero))
        if read or zero:
            sources[signal] = (*read, *zero)
    return sources


class Plan:
    """Signals, parts and other keys of records with the same keys, worked out once for each such set."""

    def __init__(self, table: Table, present: Mapping[str, str], seen: AbstractSet[str]) -> None:
        self._sources = bound(table, present, seen)
        plain = {
            signal: found[0]
            for signal, found in self._sources.items()
            if found[0].plain and (len(found) == 1 or signal not in ZERO_MEANS_NOT_MEASURED)
        }
        self._plain = tuple(plain)
        self._keys = tuple(source.keys[0] for source in plain.values())
        self._scales = tuple((signal, source.scale) for signal, source in plain.items() if source.scale != 1)
        self._others = {signal: found for signal, found in self._sources.items() if signal not in plain}
        self.used = {  # what is only averaged or summed is still worth a look of its own
            key
            for signal, found in self._sources.items()
            for source in (found if signal in ZERO_MEANS_NOT_MEASURED else found[:1])
            if not source.gathered
            for key in source.keys
        }
        self.counters = tuple(signal for signal, found in self._sources.items() if found[0].counter)
        self.uncounted = tuple(
            signal
            for signal, candidates in table
            for key in candidates
            if key.how == "increase" and left_out(key, present) and not needed(key, present)
        )
        self.parts: tuple[tuple[Part, str], ...] = ()
        self.fixed: Mapping[Part, tuple[BoundKey, ...]] = {}
        self.unmapped: tuple[str, ...] = ()

    def key(self, signal: str) -> str | None:
        """The key whose value is the signal's; ``None`` if it is read from several."""
        return dict(zip(self._plain, self._keys, strict=True)).get(signal)

    def split(self, keys: tuple[str, ...], parts: dict[str, Part]) -> None:
        """Say which of the record's keys are parts; the rest are the unmapped ones."""
        self.parts = tuple((part, key) for key, part in parts.items())
        rest = (key for key in keys if key not in self.used and key not in parts)
        self.unmapped = tuple(key for key in rest if normal(key) not in AXES)

    def signals(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Signal -> value."""
        numbers = _numbered([values[key] for key in self._keys])
        if None in numbers:
            return _read(self._sources, values)
        found: dict[str, float] = dict(zip(self._plain, numbers, strict=True))  # type: ignore[arg-type]
        for signal, scale in self._scales:
            found[signal] *= scale
        if self._others:
            found.update(_read(self._others, values))
        return found

    def keys(self, values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Signal -> the keys that its value is read from."""
        read = self.signals(values)
        found = {
            signal: next(source.keys for source in sources if _alike(source.value(values), read[signal]))
            for signal, sources in self._sources.items()
            if signal in read
        }
        return {signal: keys for signal, keys in found.items() if keys}


def _alike(value: float | None, read: float) -> bool:
    return value == read or (value is not None and math.isnan(value) and math.isnan(read))


def _numbered(written: list[Any]) -> list[float | None]:
    """All of ``number(raw)``, at once where nothing is out of the ordinary."""
    try:
        if _AS_WRITTEN.issuperset(map(type, written)):
            return list(map(float, written))
    except ValueError:
        pass
    return list(map(number, written))


def _read(sources: Mapping[Name, tuple[BoundKey, ...]], values: Mapping[str, Any]) -> dict[Name, float]:
    """The first source of each signal that is a number; a zero that says nothing gives way."""
    read: dict[Name, float] = {}
    for signal, found in sources.items():
        for source in found:
            value = source.value(values)
            if value is not None:
                read[signal] = value
                if value or signal not in ZERO_MEANS_NOT_MEASURED:
                    break
    return read


UNKNOWN = "unknown"
SETTLED = 12  # So many signals of one framework leave no doubt about it
MOST_KEYS = 1000  # Different keys of one run that count when its framework is guessed
MANY_KEYS = 300  # Beyond so many keys, the framework is guessed again only when a quarter more have come
MOST_PLANS = 64
MOST_PLANNED_KEYS = 20_000
MOST_PARTS = 16  # of each signal: many reward functions leave room for data sets


class Reading:
    """What the records of one run say, in canonical signals.

    ``framework`` names the table of keys; if it is empty, the framework is the one whose table
    fits the keys seen so far best, and signals that none of its keys carries may have the names that
    home-made loops give them. ``additions`` are a user's own keys (signal -> keys, best
    first); they come before those of every framework.
    """

    def __init__(self, framework: str, additions: Keys = MappingProxyType({})) -> None:
        self._given = bool(framework)
        self._guessing = not framework
        self._framework = framework
        self._additions: Additions = tuple(additions.items())
        self._guess_from = 0
        self._seen: dict[str, None] = {}
        self._names: AbstractSet[str] = frozenset()
        self._known: frozenset[str] = frozenset()
        self._parts: set[Part] = set()
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._planned = 0
        self._totals: dict[str, float] = {}
        self._keys: tuple[str, ...] | None = None
        self._values: Mapping[str, Any] | None = None
        self._plan = Plan((), {}, frozenset())

    @property
    def framework(self) -> str:
        """The framework whose keys these are; ``unknown`` while nothing shows it."""
        return self._framework or UNKNOWN

    @property
    def carried(self) -> frozenset[str]:
        """The signals that some key seen so far carries in the framework's table."""
        return self._known

    def signals(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Signal -> value in base units. What was not logged is absent; NaN stays NaN.

        Ask once for each record, in their order: a trainer's counters become increases since the last.
        """
        plan = self._planned_for(values)
        found = plan.signals(values)
        for signal in plan.uncounted:
            self._totals.setdefault(signal, 0.0)
        for signal in plan.counters:
            if (total := found.pop(signal, None)) is not None:
                before = self._totals.get(signal, math.inf)
                self._totals[signal] = total
                if total >= before:  # the first is of no one knows how many steps, as is one that began again
                    found[signal] = total - before
        return found

    def parts(self, values: Mapping[str, Any]) -> dict[Part, float]:
        """(Signal, part) -> value, of at most 16 parts of each signal a run."""
        plan = self._planned_for(values)
        return {**_numbers(values, plan.parts), **_read(plan.fixed, values)}

    def sources(self, values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Signal -> the keys that its value in this record is read from."""
        return self._planned_for(values).keys(values)

    def unmapped(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Key -> value of what is a number and no signal, those included that were averaged into one."""
        plan = self._planned_for(values)
        return _numbers(values, zip(plan.unmapped, plan.unmapped, strict=True))

    def _planned_for(self, values: Mapping[str, Any]) -> Plan:
        if values is not self._values:  # signals and parts are asked for of each record in turn
            keys = tuple(values)
            if keys != self._keys:
                self._plan = self._plans.get(keys) or self._new_plan(keys)
                self._keys = keys
            self._values = values
        return self._plan

    def _new_plan(self, keys: tuple[str, ...]) -> Plan:
        self._learn(keys)
        if len(self._plans) >= MOST_PLANS or self._planned > MOST_PLANNED_KEYS:
            self._forget()
        plan, parts = Plan((), {}, frozenset()), {}
        if self._framework:
            found = (
                table(self._framework, self._additions)
                if self._given
                else completed(self._framework, self._additions, self._known)
            )
            present = spellings(self._framework, keys)
            plan = Plan(found, present, self._names)
            plan.fixed = bound(frameworks()[self._framework].fixed.items(), present, self._names)
            plan.used.update(key for of in plan.fixed.values() for key in of[0].keys)
            parts = self._parts_in(keys, plan)
        plan.split(keys, parts)
        self._plans[keys] = plan
        self._planned += len(keys)
        return plan

    def _forget(self) -> None:
        self._plans.clear()
        self._planned = 0

    def _learn(self, keys: tuple[str, ...]) -> None:
        """Keys that were not there before may change what the others mean."""
        room = MOST_KEYS - len(self._seen)
        new = [key for key in keys if key not in self._seen and len(key) <= LONGEST_KEY][:room]
        if not new:
            return
        self._seen.update(dict.fromkeys(new))
        self._forget()
        if self._guessing and len(self._seen) >= self._guess_from:
            # the best fit; the framework so far remains unless another fits better
            fits = {name: len(carried(name, self._seen)) for name in guessed()}
            best = max(fits.values())
            if best > fits.get(self._framework, 0):
                self._framework = next(name for name, signals in fits.items() if signals == best)
            elif not self._framework and carried(HOME_MADE, self._seen, self._additions):
                self._framework = HOME_MADE
            self._guessing = best < SETTLED
            self._guess_from = len(self._seen) * 5 // 4 if len(self._seen) > MANY_KEYS else 0
        if self._framework:
            self._names = spellings(self._framework, self._seen).keys()
            self._known = carried(self._framework, self._seen, self._additions)

    def _parts_in(self, keys: tuple[str, ...], plan: Plan) -> dict[str, Part]:
        """Key -> the part whose value it holds."""
        framework = frameworks()[self._framework]
        others = [key for key in keys if key not in plan.used and len(key) <= LONGEST_KEY]
        found = {key: part for key in others if (part := _part(key, framework.parts))}
        for signal, pattern, whole in framework.named:
            names = [part for key in others if (part := _part(key, ((signal, pattern),)))]
            holder = plan.key(whole)
            if holder and len(names) == 1:  # a tracker that joins a step's records keeps one value for all
                found[holder] = names[0]
        for part in found.values():
            if sum(signal == part[0] for signal, _ in self._parts) < MOST_PARTS:
                self._parts.add(part)
        return {key: part for key, part in found.items() if part in self._parts}


def _part(key: str, patterns: Iterable[tuple[str, re.Pattern[str]]]) -> Part | None:
    """The first part whose name the key holds."""
    found = ((signal, each.fullmatch(key)) for signal, each in patterns)
    return next(((signal, "/".join(match.groups())) for signal, match in found if match), None)


def _numbers(values: Mapping[str, Any], wanted: Any) -> dict[Any, float]:
    found = ((name, number(values[key])) for name, key in wanted)
    return {name: value for name, value in found if value is not None}
