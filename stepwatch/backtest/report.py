"""The report of a backtest, as JSON and as text for a terminal, and the folder that it is written to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile

import orjson

from stepwatch.backtest import suggestions
from stepwatch.backtest.judge import Judged, Results
from stepwatch.backtest.replay import Unjudged
from stepwatch.backtest.suggestions import Suggestion
from stepwatch.schema.errors import Refused
from stepwatch.system.terminal import table

PAGE, DOCUMENT = "index.html", "backtest.json"

HEAD = ("alert", "severity", "records", "steps", "value", "threshold", "")
SUGGESTED = ("limit", "alert", "severity", "now", "fires on", "lower", "higher")
NOTHING = "No run found. docs/formats.md lists the supported formats."
UNKNOWN = "none of its keys is a signal that rules use; `make inspect RUNS=folder` shows them"


@dataclass(frozen=True)
class Report:
    """The results, the values that were ``tried`` in place of the file's, and what other limits would do.

    ``suggestions`` is None where they were not asked for.
    """

    results: Results
    tried: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] | None = None

    def json(self) -> str:
        """Return the report as JSON."""
        found = {**self.results.document(), "tried": list(self.tried)}
        if self.suggestions is not None:
            found["suggestions"] = [asdict(suggestion) for suggestion in self.suggestions]
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()

    def lines(self) -> Iterator[str]:
        """Yield each run with its alerts below it, what was left out, and what other limits would change."""
        for run in self.results.runs:
            yield from _lines(run)
        if not self.results.runs:
            yield NOTHING
        judged = len(self.results.judged)
        if not judged:
            return
        yield ""
        yield f"Not replayed, because logs lack the data: {', '.join(self.results.left_out)}."
        if self.suggestions is None:
            return
        yield ""
        yield suggestions.INTRODUCTION
        rows = [
            (
                each.limit,
                each.alert,
                each.severity,
                number(each.now),
                f"{len(each.fires_on)} of {judged}",
                *each.sides,
            )
            for each in self.suggestions
            if each.reached
        ]
        if rows:
            yield from table([SUGGESTED, *rows])
        if unreached := suggestions.unreached(self.suggestions):
            yield unreached


def _lines(run: Judged | Unjudged) -> Iterator[str]:
    if isinstance(run, Unjudged):
        yield f"{run.run}: {run.error}"
        return
    yield f"{run.run}: {extent(run)}, {run.format}"
    if not run.alerts:
        yield "  no alert" if run.signals else f"  no alert: {UNKNOWN}"
        return
    rows = [
        (
            alert.alert,
            alert.severity,
            f"{alert.first_record} to {alert.last_record}",
            f"{alert.first_step} to {alert.last_step}",
            number(alert.value),
            number(alert.threshold),
            "inhibited" if alert.inhibited else "",
        )
        for alert in run.alerts
    ]
    for line in table([HEAD, *rows]):
        yield f"  {line}"


def extent(run: Judged) -> str:
    """Return how long a run is, in words."""
    if not run.records:
        return "no record"
    return f"{run.records} records, steps {run.first_step} to {run.last_step}"


def number(value: float | None) -> str:
    """Return a measured value in a few digits."""
    return "?" if value is None else f"{value:.4g}"


class FolderError(Refused):
    """Raised when a report cannot be written."""


def make(folder: Path) -> None:
    """Make the folder of a report, if it is missing, before the work begins.

    Raises:
        FolderError: It cannot be made, or not be written to.
    """
    with _folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a report, by name.

    Raises:
        FolderError: They cannot be written.
    """
    with _folder_errors(folder):
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FolderError(
            f"--report {folder}: {error.strerror}. Expected: a folder to write {PAGE} and {DOCUMENT} to. "
            "Fix: name another one, or correct its permissions."
        ) from error
