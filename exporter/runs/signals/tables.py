"""The tables of signals: what each is (``catalogue.yaml``), and the keys of each trainer (``trainers/``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from exporter.runs.signals.key import Key, Keys, joined, key_of, keys_of, normal

HERE = Path(__file__).parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Signal(NamedTuple):
    """A canonical signal, the same for every trainer.

    ``label`` tells apart what it is logged for; ``worse`` is ``up``, ``down``, ``both`` or empty.
    """

    name: str
    help: str
    unit: str
    label: str = ""
    worse: str = ""


class Framework(NamedTuple):
    """Where a framework's signals are.

    ``starts`` of its keys are each written as the other in ``keys``: prefixes that some logs add say nothing.
    ``parts`` are signals that it logs for each of several parts: the key, as a whole, holds the part's name;
    ``fixed`` are parts by name. ``named`` are those whose value is under the key of another signal, the
    third, and only the name under this one. The logs of what is not ``guessed`` name it: its table is not
    tried on others' keys.
    """

    keys: Keys
    starts: tuple[tuple[re.Pattern[str], str], ...] = ((re.compile(""), ""),)
    parts: tuple[tuple[str, re.Pattern[str]], ...] = ()
    named: tuple[tuple[str, re.Pattern[str], str], ...] = ()
    guessed: bool = True
    fixed: Mapping[tuple[str, str], tuple[Key, ...]] = MappingProxyType({})


def read(path: Path) -> Any:
    """Return a file of YAML."""
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)  # noqa: S506  (it is the safe one)


@cache
def frameworks() -> Mapping[str, Framework]:
    """Return all frameworks by name. Among those that fit a log equally well the first one wins."""
    tables = {path.stem: read(path) for path in (HERE / "trainers").glob("*.yaml")}
    bases = {"": Framework({}), "catalogue": Framework({name: (Key((normal(name),)),) for name in NAMES})}
    found: dict[str, Framework] = {}
    for name in sorted(tables, key=lambda each: tables[each]["rank"]):
        table = tables[name]
        base, parts = (bases | found)[table.get("extends", "")], table.get("parts", ())
        starts = [(re.compile(re.escape(prefix)), "") for prefix in table.get("prefixes", ())]
        starts += [(re.compile(start), usual) for start, usual in table.get("variants", {}).items()]
        patterns = [(each["signal"], re.compile(each["key"])) for each in parts if "key" in each]
        by_name = {(each["signal"], each["part"]): each["keys"] for each in parts if "part" in each}
        named = [
            (each["signal"], re.compile(each["key"]), each["value_of"]) for each in table.get("named", ())
        ]
        found[name] = Framework(
            keys=joined(keys_of(table["signals"]), base.keys),
            starts=(*base.starts, *starts),
            parts=(*base.parts, *patterns),
            named=tuple(named),
            guessed=table.get("guessed", True),
            fixed={**base.fixed, **{part: tuple(map(key_of, keys)) for part, keys in by_name.items()}},
        )
    return found


_CATALOGUE = read(HERE / "catalogue.yaml")
SIGNALS = tuple(Signal(name, **each) for name, each in _CATALOGUE["signals"].items())
PART_SIGNALS = tuple(Signal(name, **each) for name, each in _CATALOGUE["parts"].items())
NAMES = tuple(signal.name for signal in SIGNALS)
