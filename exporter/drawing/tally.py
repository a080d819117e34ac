"""How many there are, in words."""

from __future__ import annotations

from collections.abc import Mapping


def count(number: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def tally(noun: str, kinds: Mapping[str, int]) -> str:
    """``3 runs: 1 critical, 2 fine.``; kinds that there are none of are left out."""
    parts = [f"{number} {kind}" for kind, number in kinds.items() if number]
    return f"{count(sum(kinds.values()), noun)}: {', '.join(parts)}."
