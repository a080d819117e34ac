"""Keys of each framework, one module a framework."""

from __future__ import annotations

import re
from typing import NamedTuple

from exporter.runs.signals.key import Keys
from exporter.runs.signals.keys import areal, generic, nemo_rl, openrlhf, scoped, slime, trl, verl


class Framework(NamedTuple):
    """Where a framework's signals are.

    ``prefixes`` stand before its keys in some of its logs and say nothing. ``variants`` are other
    starts of its keys, each with the one that ``keys`` has. ``parts`` are the signals it logs for
    each of several parts: the key, as a whole, holds the part's name.
    """

    keys: Keys
    prefixes: tuple[str, ...] = ()
    variants: tuple[tuple[re.Pattern[str], str], ...] = ()
    parts: tuple[tuple[str, re.Pattern[str]], ...] = ()


FRAMEWORKS: dict[str, Framework] = {
    "verl": Framework(verl.KEYS, parts=verl.PARTS),
    "trl": Framework(trl.KEYS, trl.PREFIXES, parts=trl.PARTS),
    "openrlhf": Framework(openrlhf.KEYS, openrlhf.PREFIXES),
    "nemo_rl": Framework(nemo_rl.KEYS),
    "slime": Framework(slime.KEYS),
    "areal": Framework(areal.KEYS, variants=areal.VARIANTS),
    "generic": Framework(generic.KEYS, generic.PREFIXES, parts=generic.PARTS),
    "scoped": Framework(scoped.KEYS, generic.PREFIXES, parts=generic.PARTS),
}
"""All frameworks by name. Among those that fit a log equally well the first one wins."""
