"""Prints which keys trainers' newest releases log that no table has, and which keys of a table none has."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from exporter.runs.signals.key import keys_of, normal
from exporter.runs.signals.tables import HERE, frameworks
from exporter.runs.signals.tables import read as read_table
from tools.drift.sources import ANY, Sources, download, read

TRAINERS = Path(__file__).with_name("trainers.yaml")
_STATISTIC = re.compile(r"(_(avg|max|mean|median|min|p\d\d|std|sum|tp\d\d))+$")
"""Trainers put these behind a key by a function, so that they tell nothing of it."""
_ANY = "0any0"
"""``ANY`` in normal form, which is of letters and digits."""
_LETTERS = 4
"""A pattern with fewer fits anything."""


def main() -> int:
    """Compare all trainers of a list; the exit code is 1 if one could not be fetched."""
    parser = argparse.ArgumentParser(prog="python -m tools.drift", description=__doc__)
    parser.add_argument("--trainers", type=Path, default=TRAINERS, help="the list, as trainers.yaml")
    trainers = yaml.safe_load(parser.parse_args().trainers.read_text(encoding="utf-8"))
    warnings.simplefilter("ignore")  # of others' sources
    found = {package: _sources(package) for package in trainers["published"]}
    sources = {package: each for package, each in found.items() if each is not None}
    print("\n".join(_report(trainers["published"], sources)))
    for table, date in trainers["repositories"].items():
        print(f"{table}: not on the package index; its sources were last read on {date}.")
    return int(len(sources) < len(found))


def _sources(package: str) -> Sources | None:
    try:
        with tempfile.TemporaryDirectory() as folder:
            return read(download(package, Path(folder)))
    except OSError as problem:
        print(f"ERROR: {problem}", file=sys.stderr)
        return None


def _report(tables: Mapping[str, str], sources: Mapping[str, Sources]) -> Iterator[str]:
    """What each release logs that no table has, and what each table has that none of its releases has."""
    known = ends(frozenset().union(*map(names, frameworks())))
    for package, found in sources.items():
        new = sorted(key for key in found.logged if not fitting(known, key, key.partition("/")[2]))
        yield f"{package} {found.version}: {len(found.logged)} keys, {len(new)} in no table"
        yield from (f"  + {key}" for key in new)
    for table in dict.fromkeys(tables[package] for package in sources if tables[package]):
        texts = [
            text for package, found in sources.items() if tables[package] == table for text in found.texts
        ]
        mine = names(table)
        gone = sorted(mine - fitting(ends(mine), *texts))
        yield f"table {table}: {len(mine)} keys, {len(gone)} in none of its sources"
        yield from (f"  - {key}" for key in gone)


def names(table: str) -> frozenset[str]:
    """The names of keys that a table has itself, in normal form."""
    signals = keys_of(read_table(HERE / f"trainers/{table}.yaml")["signals"])
    return frozenset(name for keys in signals.values() for key in keys for name in key.names)


def ends(keys: Iterable[str]) -> Mapping[str, set[str]]:
    """The keys, in normal form, by each of their ends, without their statistic: a prefix may come first."""
    found: dict[str, set[str]] = {}
    for key in keys:
        words = _STATISTIC.sub("", key).split("_")
        for at in range(len(words)):
            found.setdefault("_".join(words[at:]), set()).add(key)
    return found


def fitting(keys: Mapping[str, set[str]], *texts: str) -> frozenset[str]:
    """The keys, by their ``ends``, that one of these texts or patterns is or ends."""
    found: set[str] = set()
    for text in texts:
        form = _STATISTIC.sub("", normal(text.replace(ANY, _ANY)))
        if ANY not in text:
            found |= keys.get(form, set())
        elif len(form.replace(_ANY, "").replace("_", "")) >= _LETTERS:
            pattern = re.compile(re.escape(form).replace(_ANY, ".*"))
            found.update(*(keys[end] for end in keys if pattern.fullmatch(end)))
    return frozenset(found)


if __name__ == "__main__":
    sys.exit(main())
