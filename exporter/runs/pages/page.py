"""Trainers that serve their metrics as a Prometheus page: gauges, counters, histograms and summaries."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from exporter.runs.pages import web
from exporter.runs.pages.source import Target
from exporter.runs.pages.web import PollError
from exporter.runs.signals.record import STEP_LIMIT, Event, Record

MONITOR = "rl_insight_monitor_"  # what rl-insight puts before the trainer's own key
SERIES_LIMIT = 20_000  # no trainer has that many series on a page
_LINE_LIMIT = 2048  # characters: the time that the parser takes grows with the square of a line's length
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
# The second is for servers that write no name which needs quotes; a label keeps those apart then.
ACCEPT = "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.9,text/plain;version=0.0.4;q=0.8,*/*;q=0.1"
MOST_GONE = 10  # runs that a page reports no more and that are known if they come back, as after a restart
SETTLE_SECONDS = 0.3
VALIDATION = ("val_", "val-")
"""How verl's keys of a validation begin; they stay on the page until the next one, steps later."""
Values = dict[str, "float | tuple[float, float]"]
"""What a page says of a run, by key: a number, or sum and count of a histogram or summary."""


def by_run(text: str, default: str) -> dict[str, Values]:
    """The runs of a page by name, ``default`` where labels name none. Raises ValueError for no page.

    Of several series with one name, the first has the name alone; the others have their labels behind it.
    """
    runs: dict[str, Values] = {}
    trainers: set[str] = set()
    for name, labels, value in _series(text):
        project, experiment, run = (labels.pop(each, "") for each in ("project", "experiment_name", "run"))
        run = "/".join(part for part in (project, experiment) if part) or run or default
        found, key = runs.setdefault(run, {}), name.removeprefix(MONITOR)
        if _TRAINER.match(name):
            trainers.add(run)
        if key in found:
            pairs = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
            key = f"{key}{{{pairs}}}"
        found[key] = value
    return {run: found for run, found in runs.items() if run in trainers}


def _series(text: str) -> Iterator[tuple[str, dict[str, str], float | tuple[float, float]]]:
    """Each series of a trainer's: name, labels, and value or sum and count."""
    from prometheus_client.parser import (  # noqa: PLC0415  (6 MB that are due only where a page is polled)
        text_string_to_metric_families,
    )

    lines = []
    for line in map(str.strip, text.split("\n")):  # Windows' line ends
        # most of a page is not a trainer's, and parsing is slow
        if len(line) > _LINE_LIMIT or _FOREIGN.match(line) or _NO_MEASURE.match(line):
            continue
        if _TYPE.match(line) or (line and not line.startswith("#")):
            if not line.startswith("#") and not _SAMPLE.match(line):
                raise ValueError(f"line {line[:60]!r} is not a metric")
            lines.append(line)
    if len(lines) > SERIES_LIMIT:
        raise ValueError(f"it has more than {SERIES_LIMIT} series")
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            samples = [(each.name, dict(each.labels), float(each.value)) for each in family.samples]
            if family.type in ("histogram", "summary"):
                yield from _totals(family.name, samples)
            else:
                yield from samples
    except OverflowError:  # the parser gives whole numbers as they are, however long
        raise ValueError("a number is too large") from None


def _totals(
    name: str, samples: list[tuple[str, dict[str, str], float]]
) -> Iterator[tuple[str, dict[str, str], tuple[float, float]]]:
    """Sum and count of each series of a histogram or summary."""
    sums = {tuple(labels.items()): value for each, labels, value in samples if each == f"{name}_sum"}
    for each, labels, count in samples:
        if each == f"{name}_count" and (total := sums.get(tuple(labels.items()))) is not None:
            yield name, labels, (total, count)


class Page(Target):
    """A page that is polled; a record for each step that is seen on it.

    A step is over when the metric that counts steps moves, and where there is none, when a value
    changes; steps are then counted from 1. Values have the metric's name as key. Of a histogram or
    summary, the value is the mean of what was observed since the last step that was seen; there is
    none while nothing was observed, and none for the first step that is seen, since what stands
    there then is older. While the counter stands at 0, or nothing but 0 was set, no step was made.
    ``run`` is its name where labels name none, ``step`` the metric that counts steps, if not called so.
    """

    source = "prometheus_page"

    def __init__(
        self, url: str, run: str | None = None, step: str | None = None, timeout: float = 10
    ) -> None:
        super().__init__(url)
        self._url, self._timeout = url, timeout
        self._default, self._step = run or urlsplit(self.name).netloc, step
        # of each run at its last step: its number, whether the page counted it, and what the page said
        self._seen: dict[str, tuple[int, bool, Values]] = {}

    def read(self) -> list[Event]:
        """A record for each run of the page that made a step. Raises PollError."""
        runs = self._found()
        if runs and self._step and not any(map(self._counter, runs.values())):
            raise PollError(
                f"{self.name} has a trainer's metrics, but no {self._step!r}, the configured step metric. "
                "Fix: set `step` to a metric of that page, or to null."
            )
        self.reported = frozenset(runs)
        records = [self._record(run, found) for run, found in runs.items()]
        gone = [run for run in self._seen if run not in self.reported]
        for run in gone[:-MOST_GONE]:  # names may change at each poll without end
            del self._seen[run]
        return [record for record in records if record is not None]

    def _found(self) -> dict[str, Values]:
        answer = web.get(self._url, {"Accept": ACCEPT}, self._timeout)
        try:
            return by_run(answer.body.decode("utf-8", "replace"), self._default)
        except ValueError as problem:
            kind = f" of type {answer.kind}" if answer.kind else ""
            raise PollError(
                f"{self.name} is not a page of metrics in Prometheus's text format: {problem}. "
                f"It is an answer{kind}. Fix: give the address that ends in /metrics, as a rule."
            ) from None

    def _counter(self, found: Values) -> str | None:
        """The metric that counts steps: the given one, or one that is called so."""
        numbers = [key for key, value in found.items() if isinstance(value, float)]
        if self._step is not None:
            return next((key for key in numbers if key == self._step.removeprefix(MONITOR)), None)
        return next(filter(_STEP.match, numbers), None)

    def _record(self, run: str, found: Values) -> Record | None:
        last, counted, before = self._seen.get(run, (0, False, None))
        counter = self._counter(found)
        if counter:
            number = found.pop(counter)
            step = int(number) if isinstance(number, float) and 0 <= number < STEP_LIMIT else 0
        else:  # our own count
            blank = not any(value[1] if isinstance(value, tuple) else value for value in found.values())
            same = _fingerprint(found) == _fingerprint(before or {})
            step = 0 if self._step or blank or same else last + 1
        if not step or (counter and counted and step == last):
            self._seen.setdefault(run, (0, False, found))
            return None
        self._seen[run] = step, counter is not None, found
        values = {key: value for key, value in found.items() if isinstance(value, float)}
        return Record(step, values | (_means(found, before) if before is not None else {}), run=run)


def _fingerprint(found: Values) -> dict[str, str]:
    """What changes with a step: not what the machine does meanwhile. NaN equals NaN in it."""
    return {key: repr(value) for key, value in found.items() if not _MACHINE.match(key)}


def _means(found: Values, before: Values) -> dict[str, float]:
    """The means of what was observed in between; a count that fell began again at 0."""
    means: dict[str, float] = {}
    for key, now in found.items():
        if isinstance(now, tuple):
            begun = before.get(key)
            if not isinstance(begun, tuple) or not now[1] >= begun[1]:  # NaN included
                begun = 0.0, 0.0
            if now[1] > begun[1]:
                means[key] = (now[0] - begun[0]) / (now[1] - begun[1])
    return means


class MonitorPage(Page):
    """A page of rl-insight's, read until two reads agree: the gauges of a step are set one by one.

    What was validated counts once, and alone reports no step: verl validates before it trains.
    """

    source = "rl_insight"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._last: dict[str, dict[str, str]] = {}
        self._validated: dict[str, Values] = {}

    def _found(self) -> dict[str, Values]:
        runs = super()._found()
        for _ in range(5):  # the step's own number is not the last gauge that is set
            now = {run: _fingerprint(found) for run, found in runs.items()}
            if now == self._last:
                break
            self._last = now
            time.sleep(SETTLE_SECONDS)
            runs = super()._found()
        return {
            run: found for run, found in runs.items() if not all(key.startswith(VALIDATION) for key in found)
        }

    def _record(self, run: str, found: Values) -> Record | None:
        record = super()._record(run, found)
        if record is None:
            return None
        validated = {key: value for key, value in record.values.items() if key.startswith(VALIDATION)}
        before, self._validated[run] = self._validated.get(run, {}), validated
        self._validated = {each: self._validated[each] for each in self._validated if each in self._seen}
        old = {key for key, value in validated.items() if before.get(key) == value}
        return replace(record, values={key: record.values[key] for key in record.values.keys() - old})
