"""Whether the cases of a rule notice each change of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from tests import real
from tests.rules import mutants, promtool, proofs, rendered
from tests.rules.equivalents import EQUIVALENTS
from tests.rules.mutants import Mutant
from tests.rules.promtool import Group

JsonObject = dict[str, Any]

RIGHT = "right"
"""The rule as it is: if its cases noticed anything in it, what they notice in others would mean nothing."""


def faults(rule: JsonObject, every: int = 1) -> list[str]:
    """Try all mutants of a rule on its cases, or one in ``every``, but for those that are excused.

    Return those that are not noticed, and what is wrong with the cases or with the excuses.
    """
    name, groups = proofs.named(rule), list(proofs.groups(rule))
    reasons = EQUIVALENTS.get(name, {})
    wrong = list(mutants.of(*rendered.whole(rule)[:-1], rule=rule))[crc32(name.encode()) % every :: every]
    if every > 1:  # an excused one passes all cases, however long they take
        wrong = [each for each in wrong if not _excused(each, reasons)]
    if not groups:
        return ["has no cases"]
    left = _unnoticed(rule, wrong, groups)
    if left is None:
        return ["is not as its cases say"]
    noticed = [mutant for mutant in wrong if mutant not in left]
    found = [f"unnoticed: {each.what}" for each in left if not _excused(each, reasons)]
    for part in reasons:
        if every == 1 and not any(_excused(mutant, [part]) for mutant in left):
            found.append(f"equivalents.py excuses what is no longer there or is noticed: {part}")
        found += [
            f"equivalents.py excuses what is noticed: {each.what}"
            for each in noticed
            if _excused(each, [part])
        ]
    return found


def _excused(mutant: Mutant, reasons: Iterable[str]) -> bool:
    """Whether one of the excuses has a part of what is changed, and what is there instead."""
    there, _, instead = mutant.what.partition(" -> ")
    every = (part.partition(" -> ") for part in reasons)
    return any(part.strip() in there and instead.startswith(other) for part, _, other in every)


def _unnoticed(rule: JsonObject, wrong: list[Mutant], groups: Iterable[Group]) -> list[Mutant] | None:
    """The mutants with which all groups are as expected; None if they are not even with the rule itself."""
    alive = {RIGHT: Mutant("", rule), **{f"m{number}": mutant for number, mutant in enumerate(wrong)}}
    tool = real.prometheus("3.13").tool
    with tempfile.TemporaryDirectory() as folder:
        for group in groups:
            rules = {word: each.named(word) for word, each in alive.items()}
            noticed = promtool.noticed(tool, Path(folder), group, rules, rule)
            alive = {word: each for word, each in alive.items() if word not in noticed}
            if alive.keys() <= {RIGHT}:
                break
    if RIGHT not in alive:
        return None
    return [wrong[int(word.removeprefix("m"))] for word in alive if word != RIGHT]


def orphans() -> Iterator[str]:
    """Cases and equivalents of rules that do not exist."""
    names = proofs.rules().keys()
    yield from (f"{name}: has cases, but is no rule" for name in sorted(proofs.cases() - names))
    yield from (f"{name}: has equivalents, but is no rule" for name in sorted(EQUIVALENTS.keys() - names))
