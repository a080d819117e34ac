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
    """A canonical signal, the same for every trainer; ``worse`` is ``up``, ``down``, ``both`` or empty."""

    name: str
    help: str
    unit: str
    worse: str = ""


class PartSignal(NamedTuple):
    """A signal that a run logs once for each part; ``label`` tells the parts apart."""

    name: str
    label: str
    help: str
    unit: str


class Framework(NamedTuple):
    """Where a framework's signals are.

    ``prefixes`` stand before its keys in some of its logs and say nothing. ``parts`` are the
    signals it logs for each of several parts: the key, as a whole, holds the part's name; ``fixed`` are
    parts by name, with where each is read from. ``named`` are those whose value is under the key of
    another signal, the third, and only the name under this one.
    ``variants`` are other starts of its keys, each with the one that ``keys`` has. Frameworks whose logs
    name them are not ``guessed``: their tables are not tried on others' keys.
    """

    keys: Keys
    prefixes: tuple[str, ...] = ()
    parts: tuple[tuple[str, re.Pattern[str]], ...] = ()
    variants: tuple[tuple[re.Pattern[str], str], ...] = ()
    named: tuple[tuple[str, re.Pattern[str], str], ...] = ()
    guessed: bool = True
    fixed: Mapping[tuple[str, str], tuple[Key, ...]] = MappingProxyType({})


def read(path: Path) -> Any:
    """Return a file of YAML."""
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)  # noqa: S506  (it is the safe one)


@cache
def frameworks(folder: Path = HERE / "trainers") -> Mapping[str, Framework]:
    """Return all frameworks by name. Among those that fit a log equally well the first one wins."""
    tables = {path.stem: read(path) for path in folder.glob("*.yaml")}
    bases: dict[str, Framework] = {"catalogue": Framework({name: (Key((normal(name),)),) for name in NAMES})}
    for name in sorted(tables, key=lambda each: tables[each]["rank"]):
        table = tables[name]
        base = bases[table["extends"]] if "extends" in table else Framework({})
        parts = table.get("parts", ())
        bases[name] = base._replace(
            keys=joined(keys_of(table["signals"]), base.keys),
            prefixes=(*base.prefixes, *table.get("prefixes", ())),
            parts=(
                *base.parts,
                *((each["signal"], re.compile(each["key"])) for each in parts if "key" in each),
            ),
            variants=tuple((re.compile(start), usual) for start, usual in table.get("variants", {}).items()),
            named=tuple(
                (each["signal"], re.compile(each["key"]), each["value_of"]) for each in table.get("named", ())
            ),
            guessed=table.get("guessed", True),
            fixed={
                **base.fixed,
                **{
                    (each["signal"], each["part"]): tuple(map(key_of, each["keys"]))
                    for each in parts
                    if "part" in each
                },
            },
        )
    del bases["catalogue"]
    return bases


_CATALOGUE = read(HERE / "catalogue.yaml")

SIGNALS = tuple(
    Signal(name, each["help"], each["unit"], each.get("worse", ""))
    for name, each in _CATALOGUE["signals"].items()
)
PART_SIGNALS = tuple(
    PartSignal(name, each["label"], each["help"], each["unit"]) for name, each in _CATALOGUE["parts"].items()
)
NAMES = tuple(signal.name for signal in SIGNALS)
