"""What stands on a page of metrics, sorted by run: a trainer's numbers, and nothing of anyone else's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

MONITOR = "rl_insight_monitor_"
"""What rl-insight puts before the trainer's own key."""

SERIES_LIMIT = 20_000
"""No trainer has that many series on a page."""

_LINE_LIMIT = 2048
"""Characters: the time that the parser takes grows with the square of a line's length."""

_SAMPLE = re.compile(r"[a-zA-Z_:][\w:]*(?:\{.*\}|[ \t])[ \t]*[-+\w.]|\{[ \t]*\".*\}[ \t]*[-+\w.]")
_TYPE = re.compile(r"# TYPE (?:[a-zA-Z_]\w*|\"[^\"\\]+\") [a-z]+$")
_NO_MEASURE = re.compile(r"[^{ \t]*_(?:bucket|created|info)(?:\{|[ \t])")
# What begins with rl_ is served by another exporter of this kind.
_FOREIGN = re.compile(
    r"(?:# TYPE )?(?:\w+:|(?:python|process|go|ray|promhttp|scrape|stepwatch|rl(?!_insight_monitor))_)"
)
_TRAINER = re.compile(
    rf"{MONITOR}|verl_|(?:.*_)?(?:rewards?|kl_divergence|(?:policy|actor|value|critic)_loss)(?:_|$)"
    r"|(?:.*_)?entropy$"
)
_MACHINE = re.compile(r".*(?:gpu|cpu|memory|_bytes)")
_STEP = re.compile(
    r"(?!(?:max|num|total)[_/])(?:[a-z0-9]+[_/])?(?:train(?:ing|er)?[_/](?:global_)?|global_)steps?(?:_total)?$"
    r"|steps?(?:_total)?$"
)

Total = tuple[float, float]
"""Sum and count of a histogram or summary."""


@dataclass(slots=True)
class Found:
    """What a page says of one run.

    ``values`` are gauges and counters, ``totals`` histograms and summaries. Of several series with
    one name, the first has the name alone; the others have their labels behind it. ``known``: some
    of it is a trainer's beyond doubt.
    """

    values: dict[str, float] = field(default_factory=dict)
    totals: dict[str, Total] = field(default_factory=dict)
    known: bool = False

    def put(self, name: str, labels: Mapping[str, str], value: float | Total) -> None:
        """Take one series."""
        self.known = self.known or _TRAINER.match(name) is not None
        key = name.removeprefix(MONITOR)
        if key in self.values or key in self.totals:
            pairs = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
            key = f"{key}{{{pairs}}}"
        if isinstance(value, tuple):
            self.totals[key] = value
        else:
            self.values[key] = value

    def counter(self, given: str | None) -> str | None:
        """The metric that counts steps: the given one, or one that is called so."""
        if given is not None:
            key = given.removeprefix(MONITOR)
            return key if key in self.values else None
        return next((key for key in self.values if _STEP.match(key)), None)

    def fingerprint(self) -> dict[str, str]:
        """What changes with a step: not what the machine does meanwhile. NaN equals NaN in it."""
        every = {**self.values, **self.totals}
        return {key: repr(value) for key, value in every.items() if not _MACHINE.match(key)}

    @property
    def is_blank(self) -> bool:
        """Was nothing set yet? A client library shows 0 until then."""
        return not any(self.values.values()) and not any(count for _, count in self.totals.values())


def by_run(text: str, default: str) -> dict[str, Found]:
    """The runs of a page by name; ``default`` is the run of series whose labels name none.

    Raises:
        ValueError: it is no page of metrics, or a line that may be a trainer's cannot be read.
    """
    runs: dict[str, Found] = {}
    for name, labels, value in _series(text):
        run = _taken_from(labels) or default
        runs.setdefault(run, Found()).put(name, labels, value)
    return {run: found for run, found in runs.items() if found.known}


def _taken_from(labels: dict[str, str]) -> str:
    """The run that labels name; these labels are taken away."""
    project, experiment, run = (labels.pop(name, "") for name in ("project", "experiment_name", "run"))
    return "/".join(part for part in (project, experiment) if part) or run


def _series(text: str) -> Iterator[tuple[str, dict[str, str], float | Total]]:
    from prometheus_client.parser import (  # noqa: PLC0415  (6 MB that are due only where a page is polled)
        text_string_to_metric_families,
    )

    lines = list(_lines(text))
    if len(lines) > SERIES_LIMIT:
        raise ValueError(f"it has more than {SERIES_LIMIT} series")
    for family in text_string_to_metric_families("\n".join(lines)):
        yield from _totals(family) if family.type in ("histogram", "summary") else _values(family)


def _lines(text: str) -> Iterator[str]:
    """The lines that may be a trainer's; most of a page is not, and parsing is slow."""
    for line in text.split("\n"):
        line = line.strip()  # noqa: PLW2901  (Windows' line ends)
        if len(line) > _LINE_LIMIT or _FOREIGN.match(line) or _NO_MEASURE.match(line):
            continue
        if _TYPE.match(line):
            yield line
        elif line and not line.startswith("#"):
            if not _SAMPLE.match(line):
                raise ValueError(f"line {line[:60]!r} is no metric")
            yield line


def _values(family: Metric) -> Iterator[tuple[str, dict[str, str], float]]:
    for sample in family.samples:
        yield sample.name, dict(sample.labels), _float(sample.value)


def _totals(family: Metric) -> Iterator[tuple[str, dict[str, str], Total]]:
    sums = {
        tuple(sample.labels.items()): sample.value
        for sample in family.samples
        if sample.name == f"{family.name}_sum"
    }
    for sample in family.samples:
        total = sums.get(tuple(sample.labels.items()))
        if sample.name == f"{family.name}_count" and total is not None:
            yield family.name, dict(sample.labels), (_float(total), _float(sample.value))


def _float(value: float) -> float:
    """The parser gives whole numbers as they are, however long."""
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a number is too large") from None
