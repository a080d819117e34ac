"""``python -m tests.formats``: write the tables of docs/formats.md: known keys, and the real logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from exporter.runs.signals.key import normal
from exporter.runs.signals.record import AXES, step_key, time_key
from exporter.runs.signals.tables import HERE, read
from exporter.runs.stats.catalogue import STATISTICS
from stepwatch.config import Config
from stepwatch.operate.inspection import inspect
from tests.public_logs import USUAL, folders

CHECKOUT = Path(__file__).parents[1]
PAGE = CHECKOUT / "docs" / "formats.md"
END = "<!-- end -->\n"
JUDGED = tuple(dict.fromkeys(statistic.signal for statistic in STATISTICS))
"""The signals that rules look at."""
MAIN = tuple(dict.fromkeys((*JUDGED, "value_loss", "learning_rate", "step_seconds", "rollout_seconds")))


def real_logs() -> Path:
    """The first folder of real logs, whether it exists or not."""
    return next(iter(folders()), USUAL[0])


def table() -> str:
    """A row for each real log."""
    rows: list[str] = []
    inspect([str(folder / "*" / "*") for folder in folders()], Config(), rows.append, markdown=True)
    return _lines(rows)


def names() -> str:
    """The keys of the main signals in home-made logs, and those that count steps and tell times."""
    rows = [(f"`{signal}`", _keys(signal)) for signal in MAIN]
    rows += [("the step", list(step_keys())), ("the time", list(time_keys()))]
    shown = [f"| {what} | {', '.join(f'`{key}`' for key in keys)} |" for what, keys in rows]
    return _lines(["| what | keys, best first |", "|---|---|", *shown])


def step_keys() -> Iterator[str]:
    """Keys that count steps, best first."""
    left = set(AXES)
    while key := step_key(left):
        left.remove(key)
        yield key


def time_keys() -> Iterator[str]:
    """Keys that tell times."""
    return (key for key in sorted(AXES) if time_key([key]))


MADE: dict[str, Callable[[], str]] = {"names": names, "real logs": table}
"""The parts of the page that are made, by what their first lines call them."""


def page(old: str) -> str:
    """The page with its made parts as they are now."""
    for what, make in MADE.items():
        begin = f"<!-- {what}, made by `make formats` -->\n"
        before, _, rest = old.partition(begin)
        old = before + begin + make() + END + rest.partition(END)[2]
    return old


def _keys(signal: str) -> list[str]:
    """As they are written; of spellings that are read alike, the first."""
    found: dict[str, str] = {}
    for entry in (*read(HERE / "trainers/generic.yaml")["signals"].get(signal, ()), signal):
        written = entry if isinstance(entry, str) else "` with `".join(next(iter(entry.values())))
        found.setdefault(normal(written), written)
    return list(found.values())


def _lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
