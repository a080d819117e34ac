"""Keys of each framework, in a module of its own or in ``trainers``."""

from __future__ import annotations

import re
from typing import NamedTuple

from exporter.runs.signals.keys import generic, trainers, trl, verl
from exporter.runs.signals.keys.key import Keys


class Framework(NamedTuple):
    """Where a framework's signals are.

    ``prefixes`` stand before its keys in some of its logs and say nothing. ``parts`` are the
    signals it logs for each of several parts: the key, as a whole, holds the part's name. ``named``
    are those whose value is under the key of another signal, the third, and only the name under this one.
    ``variants`` are other starts of its keys, each with the one that ``keys`` has.
    """

    keys: Keys
    prefixes: tuple[str, ...] = ()
    parts: tuple[tuple[str, re.Pattern[str]], ...] = ()
    variants: tuple[tuple[re.Pattern[str], str], ...] = ()
    named: tuple[tuple[str, re.Pattern[str], str], ...] = ()


FRAMEWORKS: dict[str, Framework] = {
    "verl": Framework(verl.KEYS, parts=verl.PARTS),
    "trl": Framework(trl.KEYS, trl.PREFIXES, trl.PARTS, named=trl.NAMED),
    "openrlhf": Framework(trainers.OPENRLHF, trainers.OPENRLHF_PREFIXES, trainers.OPENRLHF_PARTS),
    "nemo_rl": Framework(trainers.NEMO_RL),
    "slime": Framework(trainers.SLIME, parts=trainers.SLIME_PARTS),
    "areal": Framework(trainers.AREAL, variants=trainers.AREAL_VARIANTS),
    "generic": Framework(generic.KEYS, generic.PREFIXES, generic.PARTS),
    "roll": Framework(trainers.ROLL, parts=trainers.ROLL_PARTS),
    "prime_rl": Framework(trainers.PRIME_RL, parts=trainers.PRIME_RL_PARTS),
    "open_instruct": Framework(trainers.OPEN_INSTRUCT),
    "deepspeed_chat": Framework(trainers.DEEPSPEED_CHAT),
    "twinkle": Framework(trainers.TWINKLE),
    "scoped": Framework(generic.SCOPED, generic.PREFIXES, generic.PARTS),
}
"""All frameworks by name. Among those that fit a log equally well the first one wins."""

SELF_DESCRIBING = frozenset({"deepspeed_chat", "scoped", "twinkle"})
"""Frameworks whose logs name them: their tables are not tried on others' keys."""
