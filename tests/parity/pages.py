"""`/metrics` of recorded logs: at a third, at two thirds and at their end."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests import public_logs
from tests.own_logs import LOGS
from tests.parity.product import exporting, rounded, series, settled

CUTS = {"1/3": 1 / 3, "2/3": 2 / 3, "end": 1.0}
AGE = 60.0
"""Seconds since a log was written last: less than what counts as silence."""
NO_LOGS = re.compile(r"README|labels\.yaml|make\.py|\.prom$|\.md$")
SAMPLE = ("rl_step", "rl_reward", "rl_kl", "rl_response_length")
Page = dict[str, dict[str, str]]
"""Value by series, by run."""
EVERY_SIGNAL = (Path(__file__).with_name("signals.txt")).read_text().split()
KEYS = LOGS.parent / "runs" / "signals" / "keys.yaml"


def own() -> Iterator[str]:
    """Each series of the committed logs, with its values."""
    pages = {name: _page(lambda to, part=part: _copied(LOGS, to, part)) for name, part in CUTS.items()}  # type: ignore[misc]
    yield "# values at 1/3, 2/3 and the end of each log; - where there is none"
    for run in sorted({run for page in pages.values() for run in page}):
        yield f"\n{run}"
        parts = [page.get(run, {}) for page in pages.values()]
        for each in sorted({each for part in parts for each in part}):
            yield " ".join([f"  {each}", *(part.get(each, "-") for part in parts)])


def public() -> Iterator[str]:
    """A digest of each public log's page at its end, and little of what it shows."""

    def written(to: Path) -> None:
        for folder in public_logs.folders():
            _copied(folder, to / folder.name, 1.0)

    yield f"# run, series, digest of all, {', '.join(SAMPLE)}"
    for run, values in sorted(_page(written).items()):
        # Some took days, which begin at another second each time.
        timeless = [each for each in sorted(values) if "_timestamp_" not in each]
        lines = "\n".join(f"{each} {values[each]}" for each in timeless)
        digest = hashlib.sha256(lines.encode()).hexdigest()[:12]
        yield " ".join([run, str(len(values)), digest, *(values.get(each, "-") for each in SAMPLE)])


def signals() -> Iterator[str]:
    """Each signal there is, by a user's key: its metric and its statistics."""
    keys = json.dumps({name: [f"user/{name}"] for name in EVERY_SIGNAL})

    def written(to: Path) -> None:
        to.joinpath("every.jsonl").write_text(_records([f"user/{name}" for name in EVERY_SIGNAL]))

    yield from _lines(_page(written, f"--signals={keys}"))


def trainers() -> Iterator[str]:
    """The signals read of each key that a trainer logs: of all keys together, and of each alone."""
    keys: dict[str, list[str]] = yaml.safe_load(KEYS.read_text())
    logs = {f"{trainer}/all": sorted(names) for trainer, names in keys.items()}
    alone = {f"{trainer}/{key.replace('/', '~')}": [key] for trainer, names in keys.items() for key in names}

    def written(to: Path) -> None:
        for name, names in {**logs, **alone}.items():
            log = to / f"{name}.jsonl"
            log.parent.mkdir(exist_ok=True)
            log.write_text(_records(names, 40 if name in logs else 3))

    for run, values in sorted(_page(written).items()):
        found = {each: value for each, value in values.items() if not OF_EVERY_RUN.match(each)}
        if run in logs:
            yield from (run, *(f"  {each} {value}" for each, value in sorted(found.items())))
        else:
            told = [f"{each} {value}" for each, value in sorted(found.items())]
            yield f"{run}: {', '.join(told) or 'nothing'}"


OF_EVERY_RUN = re.compile(
    "rl_(run_|step$|steps_seen|records_|re(sumes|starts)_|last_step|raw|.*(_over_steps|_timestamp)|(ewma|start|noise|best|peak){)"
)
"""What says nothing of a key."""


def _records(keys: list[str], steps: int = 40) -> str:
    """The lines of steps in which each key has numbers of its own."""
    lines = []
    for step in range(1, steps + 1):
        values = {key: 0.1 + at / 64 + (step * (at + 3)) % 7 / 512 for at, key in enumerate(keys)}
        lines.append(json.dumps({**values, "step": step}))
    return "".join(f"{line}\n" for line in lines)


def _lines(page: Page) -> Iterator[str]:
    for run, values in sorted(page.items()):
        yield run
        yield from (f"  {each} {value}" for each, value in sorted(values.items()))


def _page(write: Callable[[Path], object], *flags: str) -> Page:
    """What an exporter shows of each run in a folder."""
    with TemporaryDirectory(prefix="stepwatch-parity-") as folder:
        logs = Path(folder) / "runs"
        logs.mkdir()
        write(logs)
        written = float(int(time.time() - AGE))
        for file in logs.rglob("*"):
            os.utime(file, (written, written))
        with exporting("exporter.runs", "--path", logs, *flags) as url:
            found = settled(url)
    page: Page = {}
    for (name, labels), value in found.samples.items():
        about = dict(labels)
        if name.startswith("rl_") and (run := about.pop("run", "")):
            page.setdefault(run, {})[series(name, about)] = _shown(name, value, written)
    return page


def _shown(name: str, value: float, written: float) -> str:
    """A value; of a time that hangs on when the log was written, what is between."""
    if name.endswith("_timestamp_seconds") and abs(value - written) < 86400:
        return f"written{value - written:+.2f}"
    return rounded(value)


def _copied(logs: Path, to: Path, part: float) -> None:
    """The first part of each log, in whole lines, at its place below another folder."""
    for file in sorted(logs.rglob("*")):
        if not file.is_file() or NO_LOGS.search(file.name):
            continue
        content, name = file.read_bytes(), file.relative_to(logs)
        if part < 1 and (name.suffix in (".json", ".gz", ".swanlab") or b"\0" in content[:4096]):
            continue  # not written from its beginning to its end, or not in lines
        if name.suffix == ".gz":
            content, name = gzip.decompress(content), name.with_suffix("")
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_first(content, part))


def _first(content: bytes, part: float) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(_until(lines, len(content) * part))


def _until(lines: Iterable[bytes], size: float) -> Iterator[bytes]:
    taken = 0
    for line in lines:
        taken += len(line)
        if taken > size:
            return
        yield line
