"""Keys of each framework, one module a framework."""

from __future__ import annotations

import re
from typing import NamedTuple

from exporter.runs.signals.keys import (
    areal,
    deepspeed_chat,
    generic,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    roll,
    scoped,
    slime,
    trl,
    twinkle,
    verl,
)
from exporter.runs.signals.keys.key import Keys


class Framework(NamedTuple):
    """Where a framework's signals are.

    ``prefixes`` stand before its keys in some of its logs and say nothing. ``parts`` are the
    signals it logs for each of several parts: the key, as a whole, holds the part's name.
    ``variants`` are other starts of its keys, each with the one that ``keys`` has.
    """

    keys: Keys
    prefixes: tuple[str, ...] = ()
    parts: tuple[tuple[str, re.Pattern[str]], ...] = ()
    variants: tuple[tuple[re.Pattern[str], str], ...] = ()


FRAMEWORKS: dict[str, Framework] = {
    "verl": Framework(verl.KEYS, parts=verl.PARTS),
    "trl": Framework(trl.KEYS, trl.PREFIXES, trl.PARTS),
    "openrlhf": Framework(openrlhf.KEYS, openrlhf.PREFIXES),
    "nemo_rl": Framework(nemo_rl.KEYS),
    "slime": Framework(slime.KEYS),
    "areal": Framework(areal.KEYS, variants=areal.VARIANTS),
    "generic": Framework(generic.KEYS, generic.PREFIXES, generic.PARTS),
    "roll": Framework(roll.KEYS),
    "prime_rl": Framework(prime_rl.KEYS),
    "open_instruct": Framework(open_instruct.KEYS),
    "deepspeed_chat": Framework(deepspeed_chat.KEYS),
    "twinkle": Framework(twinkle.KEYS),
    "scoped": Framework(scoped.KEYS, generic.PREFIXES, generic.PARTS),
}
"""All frameworks by name. Among those that fit a log equally well the first one wins."""

TELLING = frozenset({"deepspeed_chat", "scoped", "twinkle"})
"""Frameworks whose logs say what they are: their tables are not tried on others' keys."""
