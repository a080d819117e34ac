"""Reading the records of one run: which framework's keys they have, and what these mean."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from exporter.runs.signals.key import WAYS, Key, Keys, joined, normal
from exporter.runs.signals.record import AXES, number
from exporter.runs.signals.tables import frameworks
from exporter.runs.stats.catalogue import ZERO_MEANS_NOT_MEASURED

UNKNOWN = "unknown"
HOME_MADE = "generic"  # the table of home-made loops
LONGEST_KEY = 300  # in characters; what is longer is text and no key
SETTLED = 12  # So many signals of one framework leave no doubt about it
MOST_KEYS = 1000  # Different keys of one run that count when its framework is guessed
MANY_KEYS = 300  # Beyond so many keys, the framework is guessed again only when a quarter more have come
MOST_PLANS = 64
MOST_PLANNED_KEYS = 20_000
KEY_SETS = 16  # Kinds of records that are remembered: with and without validation, a checkpoint, and so on
MOST_PARTS = 16  # of each signal: many reward functions leave room for data sets
_AS_WRITTEN = frozenset({float, int, str})  # Types whose values are nearly always numbers; a boolean is none

Part = tuple[str, str]  # A signal, and the name of one of its parts
Name = TypeVar("Name")


def spellings(framework: str, keys: Iterable[str]) -> dict[str, str]:
    """Normal form -> key as it was logged; of two that look alike the first one counts."""
    logged = [key for key in keys if len(key) <= LONGEST_KEY]
    found: dict[str, str] = {}
    for start, usual in frameworks()[framework].starts:
        for key in logged:
            if at := start.match(key):
                found.setdefault(normal(usual + key[at.end() :]), key)
    return found


def _logged(key: Key, present: Mapping[str, str], seen: Mapping[str, str]) -> tuple[str, ...]:
    """The logged keys that this one is read from; none if some are missing, or mean something else here."""
    if key.pattern:
        whole = re.compile(key.pattern).fullmatch
        found = tuple(raw for name, raw in present.items() if whole(name) and re.search(key.spelled, raw))
    else:
        for name in key.names:
            if name not in present:  # as most are
                return ()
        found = tuple([present[name] for name in key.names])
        if key.spelled and not all(re.search(key.spelled, raw) for raw in found):
            return ()
    unknown = key.when and seen.keys().isdisjoint(key.when)
    return () if unknown or not seen.keys().isdisjoint(key.unless) else found


def carried(framework: str, keys: Iterable[str], additions: Keys = MappingProxyType({})) -> frozenset[str]:
    """The signals that these keys carry, by the framework's table and a user's additions."""
    seen, table = spellings(framework, keys), (*frameworks()[framework].keys.items(), *additions.items())
    return frozenset(signal for signal, found in table if any(_logged(key, seen, seen) for key in found))


def bound(
    table: Mapping[Name, tuple[Key, ...]], present: Mapping[str, str], seen: Mapping[str, str]
) -> dict[Name, tuple[Key, ...]]:
    """What each signal is read from in records with the keys ``present``, with names as they are logged.

    ``seen`` are all keys that the run logged so far. A count that is left out at 0 has no names.
    """
    sources = {}
    for signal, candidates in table.items():
        read: list[Key] = []
        zero: list[Key] = []
        for key in candidates:
            if names := _logged(key, present, seen):
                at = key.where and present.get(key.where[0])
                where = (at, *key.where[1:]) if key.where and at else None
                read.append(key._replace(names=names, where=where))
            elif not present.keys().isdisjoint(key.zero_with) and (
                key.how == "increase" or _logged(key, seen, seen)
            ):
                zero.append(key._replace(names=(), where=None))
        if read or zero:
            sources[signal] = (*read, *zero)
    return sources


def fits(keys: Iterable[str]) -> dict[str, frozenset[str]]:
    """The signals that these keys carry by the table of each framework that a log may turn out to be of."""
    return {name: carried(name, keys) for name, each in frameworks().items() if each.guessed}


class Plan(NamedTuple):
    """How records with the same keys are read, worked out once for each such set.

    ``plain`` has the signals that are one key's value, times their ``scales``, and ``others`` the rest.
    """

    sources: Mapping[str, tuple[Key, ...]]
    plain: Mapping[str, str]
    scales: Mapping[str, float]
    others: Mapping[str, tuple[Key, ...]]
    counters: tuple[str, ...]
    parts: Mapping[Part, tuple[Key, ...]]
    unmapped: tuple[str, ...]


class Reading:
    """What the records of one run say, in canonical signals.

    ``framework`` names the table of keys. If it is empty, it becomes the one whose table fits the keys seen
    so far best, ``UNKNOWN`` until one does, and signals that none of its keys carries may have the names that
    home-made loops give them. ``additions`` are a user's own keys, which come before those of every table.
    ``carried`` are the signals that some key seen so far carries. ``records`` are the last ones that were
    noted by their keys, of which so many ``kinds`` came.
    """

    def __init__(self, framework: str, additions: Keys = MappingProxyType({})) -> None:
        self.framework = framework or UNKNOWN
        self.carried: frozenset[str] = frozenset()
        self._given, self._guessing, self._guess_from = bool(framework), not framework, 0
        self.records: dict[tuple[str, ...], Mapping[str, Any]] = {}
        self.kinds = 0
        self._additions = additions
        self._seen: dict[str, None] = {}
        self._names: Mapping[str, str] = {}
        self._parts: set[Part] = set()
        self._totals: dict[str, float] = {}
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._last: tuple[Mapping[str, Any] | None, Plan | None] = None, None

    def signals(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Signal -> value in base units. What was not logged is absent; NaN stays NaN.

        Ask once for each record, in their order: a trainer's counters become increases since the last.
        """
        plan = self._plan(values)
        written = list(map(values.__getitem__, plan.plain.values()))
        numbers: list[float | None] = []
        try:  # all at once where nothing is out of the ordinary
            if _AS_WRITTEN.issuperset(map(type, written)):
                numbers = list(map(float, written))
        except ValueError:
            pass
        numbers = numbers or list(map(number, written))
        if None in numbers:
            found = _read(plan.sources, values)
        else:
            found = dict(zip(plan.plain, numbers, strict=True))  # type: ignore[arg-type]
            for signal, scale in plan.scales.items():
                found[signal] *= scale
            if plan.others:
                found |= _read(plan.others, values)
        for signal in plan.counters:
            before = self._totals.get(signal, math.inf)
            if not plan.sources[signal][0].names:
                self._totals.setdefault(signal, 0.0)
            elif (total := found.pop(signal, None)) is not None:
                self._totals[signal] = total
                if total >= before:  # the first is of no one knows how many steps, as is one that began again
                    found[signal] = total - before
        return found

    def parts(self, values: Mapping[str, Any]) -> dict[Part, float]:
        """(Signal, part) -> value, of at most 16 parts of each signal a run."""
        return _read(self._plan(values).parts, values)

    def note(self, values: Mapping[str, Any]) -> None:
        """Take a record that counts; its values are looked at when they are asked for."""
        keys = tuple(values)
        self.kinds += self.records.pop(keys, None) is None
        self.records[keys] = values
        if len(self.records) > KEY_SETS:
            del self.records[next(iter(self.records))]

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Signal -> the keys that its value was read from last."""
        read_from: dict[str, tuple[str, ...]] = {}
        for values in self.records.values():
            _read(self._plan(values).sources, values, read_from)
        return read_from

    def unmapped(self) -> dict[str, float]:
        """Key -> last value of what is a number and no signal, those included that were averaged into one."""
        found: dict[str, float] = {}
        for values in self.records.values():
            for key in self._plan(values).unmapped:
                if (value := number(values[key])) is not None:
                    found[key] = value
        return found

    def _plan(self, values: Mapping[str, Any]) -> Plan:
        last, plan = self._last
        if plan is None or values is not last:  # signals and parts are asked for of each record in turn
            keys = tuple(values)
            plan = self._plans.get(keys) or self._new_plan(keys)
            self._last = values, plan
        return plan

    def _new_plan(self, keys: tuple[str, ...]) -> Plan:
        self._learn(keys)
        if len(self._plans) >= MOST_PLANS or sum(map(len, self._plans)) > MOST_PLANNED_KEYS:
            self._plans.clear()
        sources: dict[str, tuple[Key, ...]] = {}
        parts: dict[Part, tuple[Key, ...]] = {}
        fixed: dict[Part, tuple[Key, ...]] = {}
        if self.framework != UNKNOWN:
            present = spellings(self.framework, keys)
            sources = bound(self._table(), present, self._names)
            fixed = bound(frameworks()[self.framework].fixed, present, self._names)
        plain, used = {}, {key for found in fixed.values() for key in found[0].names}
        for signal, found in sources.items():
            first, *others = found if signal in ZERO_MEANS_NOT_MEASURED else found[:1]
            if first.names and first.how in ("key", "increase") and not first.where and not others:
                plain[signal] = first
            for key in (first, *others):
                if not key.pattern:  # what is only averaged or summed is still worth a look of its own
                    used.update(key.names)
        of_parts = self._parts_in([key for key in keys if key not in used and len(key) <= LONGEST_KEY], plain)
        for raw, part in of_parts.items():
            parts[part] = (Key((raw,)), *parts.get(part, ()))
        for part, found in fixed.items():
            parts[part] = (*found, *parts.get(part, ()))
        used |= of_parts.keys()
        self._plans[keys] = plan = Plan(
            sources,
            {signal: key.names[0] for signal, key in plain.items()},
            {signal: key.scale for signal, key in plain.items() if key.scale != 1},
            {signal: found for signal, found in sources.items() if signal not in plain},
            tuple(signal for signal, found in sources.items() if found[0].how == "increase"),
            parts,
            tuple(key for key in keys if key not in used and normal(key) not in AXES),
        )
        return plan

    def _table(self) -> Keys:
        """The user's keys and the framework's; if that is guessed, home-made names of what is not carried."""
        table = joined(self._additions, frameworks()[self.framework].keys)
        if self._given:
            return table
        taken = {name for keys in table.values() for key in keys for name in key.names}
        home_made = {
            signal: tuple(key for key in keys if taken.isdisjoint(key.names))
            for signal, keys in frameworks()[HOME_MADE].keys.items()
            if signal not in self.carried
        }
        return joined(table, home_made)

    def _learn(self, keys: tuple[str, ...]) -> None:
        """Keys that were not there before may change what the others mean."""
        new = [key for key in keys if key not in self._seen and len(key) <= LONGEST_KEY]
        new = new[: MOST_KEYS - len(self._seen)]
        if not new:
            return
        self._seen.update(dict.fromkeys(new))
        self._plans.clear()
        if self._guessing and len(self._seen) >= self._guess_from:
            # the best fit; the framework so far remains unless another fits better
            sizes = {name: len(signals) for name, signals in fits(self._seen).items()}
            best = max(sizes.values())
            if best > sizes.get(self.framework, 0):
                self.framework = next(name for name, size in sizes.items() if size == best)
            elif self.framework == UNKNOWN and carried(HOME_MADE, self._seen, self._additions):
                self.framework = HOME_MADE
            self._guessing = best < SETTLED
            self._guess_from = len(self._seen) * 5 // 4 if len(self._seen) > MANY_KEYS else 0
        if self.framework != UNKNOWN:
            self._names = spellings(self.framework, self._seen)
            self.carried = carried(self.framework, self._seen, self._additions)

    def _parts_in(self, others: list[str], plain: Mapping[str, Key]) -> dict[str, Part]:
        """Key -> the part whose value it holds, of keys that no signal uses and of ``plain`` signals."""
        if self.framework == UNKNOWN:
            return {}
        framework = frameworks()[self.framework]
        found: dict[str, Part] = {}
        for key, (signal, pattern) in product(others, framework.parts):
            if key not in found and (match := pattern.fullmatch(key)):
                found[key] = signal, "/".join(match.groups())
        for signal, pattern, whole in framework.named:
            names = ["/".join(match.groups()) for match in map(pattern.fullmatch, others) if match]
            if whole in plain and len(names) == 1:  # a tracker that joins a step's records keeps one value
                found[plain[whole].names[0]] = signal, names[0]
        for part in found.values():
            if sum(signal == part[0] for signal, _ in self._parts) < MOST_PARTS:
                self._parts.add(part)
        return {key: part for key, part in found.items() if part in self._parts}


def _read(
    sources: Mapping[Name, tuple[Key, ...]],
    values: Mapping[str, Any],
    read_from: dict[Name, tuple[str, ...]] | None = None,
) -> dict[Name, float]:
    """The first source of each signal that is a number; a zero that says nothing gives way."""
    read: dict[Name, float] = {}
    for name, found in sources.items():
        for key in found:
            if key.where is not None:
                at = number(values[key.where[0]])
                if at is not None and (at > key.where[2]) != (key.where[1] == ">"):
                    continue
            numbers = list(map(number, map(values.__getitem__, key.names)))
            if None in numbers or not (numbers or key.how != "increase"):
                continue
            formula = WAYS[key.how][1]
            value = 0.0 if not numbers else formula(*numbers) if formula else numbers[0]
            if value is None:
                continue
            if value or name not in read:
                read[name] = value * key.scale
                if read_from is not None and key.names:
                    read_from[name] = key.names
            if value or name not in ZERO_MEANS_NOT_MEASURED:
                break
    return read
