"""``python -m tests.runs.formats``: write what is read out of the logs here, NAME.events beside NAME.log.

NAME is a format's. A line ``=== promise`` begins a log of its own; what the program reads there stands below
the same line in NAME.events: the format that is recognised, then its events, with the signals of each record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from exporter.runs.formats import SOURCES, Source, recognise_first
from exporter.runs.formats.prefixes import Prefixes
from exporter.runs.signals import Reading
from exporter.runs.signals.record import Event, Record, number

HERE = Path(__file__).parent
FORMATS = {source.name: (kind, source) for kind, sources in SOURCES.items() for source in sources}
_TITLE = re.compile(rb"^=== (.*)\n", re.MULTILINE)


def logs(path: Path) -> list[tuple[str, bytes]]:
    """Each log of a file with the promise that it shows."""
    _, *parts = _TITLE.split(path.read_bytes())
    return list(zip(map(bytes.decode, parts[::2]), parts[1::2], strict=True))


def parse(source: Source, lines: Iterable[bytes]) -> Iterator[Event | str]:
    """The events of these lines, and ``malformed`` for a line that is invalid."""
    for line in lines:
        try:
            yield from list(source.parse(line))
        except ValueError:
            yield "malformed"


def described(name: str, log: bytes) -> str:
    """What is read out of a log, a line for each event."""
    kind, form = FORMATS[name]
    lines = Prefixes().strip(log[:-1].split(b"\n"))
    known, reading, source = recognise_first(lines, kind), Reading(form.framework), form()
    shown = [f"format: {known.name if known else 'none'}"]
    for event in [*parse(source, lines), *source.flush()]:
        if isinstance(event, Record):
            values = {key: number(value) for key, value in event.values.items()}
            about = {"time": event.time, "stream": event.stream, "run": event.run}
            told = "".join(f" {what}={value}" for what, value in about.items() if value not in (None, ""))
            shown.append(f"{event.step}{told}: {json.dumps(values, ensure_ascii=False)}")
            parts = reading.parts(event.values).items()
            signals = reading.signals(event.values) | {
                f"{name}[{part}]": value for (name, part), value in parts
            }
            shown.append(f"    {json.dumps(signals)}")
        else:
            shown.append(str(event))
    return "".join(f"{line}\n" for line in shown)


def golden(path: Path) -> str:
    """What is read out of all logs of a file."""
    return "".join(f"=== {title}\n{described(path.stem, log)}" for title, log in logs(path))


if __name__ == "__main__":
    for each in HERE.glob("*.log"):
        each.with_suffix(".events").write_text(golden(each), encoding="utf-8")
