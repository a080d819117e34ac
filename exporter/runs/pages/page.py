"""Trainers that serve their metrics as a Prometheus page: gauges, counters, histograms and summaries."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from exporter.runs.pages import web
from exporter.runs.pages.web import PollError
from exporter.runs.signals.record import STEP_LIMIT, Event, Record
from exporter.secret_shapes import masked_url

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

Total = tuple[float, float]  # Sum and count of a histogram or summary


@dataclass(slots=True)
class Found:
    """What a page says of one run: ``values`` are gauges and counters, ``totals`` histograms and summaries.

    ``known``: some of it is a trainer's beyond doubt.
    """

    values: dict[str, float] = field(default_factory=dict)
    totals: dict[str, Total] = field(default_factory=dict)
    known: bool = False

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


def by_run(text: str, default: str) -> dict[str, Found]:
    """The runs of a page by name, ``default`` where labels name none. Raises ValueError for no page.

    Of several series with one name, the first has the name alone; the others have their labels behind it.
    """
    runs: dict[str, Found] = {}
    for name, labels, value in _series(text):
        project, experiment, run = (labels.pop(each, "") for each in ("project", "experiment_name", "run"))
        run = "/".join(part for part in (project, experiment) if part) or run or default
        found = runs.setdefault(run, Found())
        found.known = found.known or _TRAINER.match(name) is not None
        key = name.removeprefix(MONITOR)
        if key in found.values or key in found.totals:
            pairs = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
            key = f"{key}{{{pairs}}}"
        if isinstance(value, tuple):
            found.totals[key] = value
        else:
            found.values[key] = value
    return {run: found for run, found in runs.items() if found.known}


def _series(text: str) -> Iterator[tuple[str, dict[str, str], float | Total]]:
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
    for family in text_string_to_metric_families("\n".join(lines)):
        if family.type not in ("histogram", "summary"):
            yield from ((sample.name, dict(sample.labels), _float(sample.value)) for sample in family.samples)
            continue
        named = [(sample.name.removeprefix(family.name), sample) for sample in family.samples]
        sums = {tuple(each.labels.items()): each.value for name, each in named if name == "_sum"}
        for name, each in named:
            if name == "_count" and (total := sums.get(tuple(each.labels.items()))) is not None:
                yield family.name, dict(each.labels), (_float(total), _float(each.value))


def _float(value: float) -> float:
    """The parser gives whole numbers as they are, however long."""
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a number is too large") from None


# The second is for servers that write no name which needs quotes; a label keeps those apart then.
_ACCEPT = "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.9,text/plain;version=0.0.4;q=0.8,*/*;q=0.1"


MOST_GONE = 10
"""Runs that a page reports no more and that are still known if they come back, as after a job's restart."""


@dataclass(slots=True)
class _Seen:
    """A run at its last step; ``totals`` are ``None`` before the first poll, ``counted`` steps the page's."""

    step: int = 0
    counted: bool = False
    fingerprint: dict[str, str] = field(default_factory=dict)
    totals: dict[str, Total] | None = None


class Page:
    """A page that is polled; a record for each step that is seen on it.

    A step is over when the metric that counts steps moves, and where there is none, when a value
    changes; steps are then counted from 1. Values have the metric's name as key. Of a histogram or
    summary, the value is the mean of what was observed since the last step that was seen; there is
    none while nothing was observed, and none for the first step that is seen, since what stands
    there then is older. While the counter stands at 0, or nothing but 0 was set, no step was made.
    ``run`` is its name where labels name none, ``step`` the metric that counts steps, if not called so.
    """

    source = "prometheus_page"
    has_history = False
    is_trainer = True

    def __init__(
        self, url: str, run: str | None = None, step: str | None = None, timeout: float = 10
    ) -> None:
        self.name = masked_url(url)
        self._url, self._step, self._timeout = url, step, timeout
        self._run = run or urlsplit(self.name).netloc
        self.reported: frozenset[str] = frozenset()
        self.lacking: tuple[str, ...] = ()
        self._seen: dict[str, _Seen] = {}

    def poll(self) -> list[Event]:
        """A record for each run of the page that made a step. Raises PollError."""
        runs = self._read()
        if runs and self._step and not any(found.counter(self._step) for found in runs.values()):
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

    def _read(self) -> dict[str, Found]:
        answer = web.get(self._url, {"Accept": _ACCEPT}, self._timeout)
        try:
            return by_run(answer.body.decode("utf-8", "replace"), self._run)
        except ValueError as problem:
            kind = f" of type {answer.kind}" if answer.kind else ""
            raise PollError(
                f"{self.name} is not a page of metrics in Prometheus's text format: {problem}. "
                f"It is an answer{kind}. Fix: give the address that ends in /metrics, as a rule."
            ) from None

    def _record(self, run: str, found: Found) -> Record | None:
        seen = self._seen.setdefault(run, _Seen())
        if counter := found.counter(self._step):
            value = found.values.pop(counter)
            step = int(value) if 0 <= value < STEP_LIMIT else 0
        else:  # our own count
            fingerprint, step = found.fingerprint(), 0
            blank = not any(found.values.values()) and not any(count for _, count in found.totals.values())
            if not (self._step or blank or fingerprint == seen.fingerprint):
                seen.fingerprint, step = fingerprint, seen.step + 1
        if seen.totals is None and not step:
            seen.totals = found.totals
        if not step or (counter and seen.counted and step == seen.step):
            return None
        values = found.values | _means(found.totals, seen.totals)
        seen.step, seen.counted, seen.totals = step, counter is not None, found.totals
        return Record(step, values, run=run)


def _means(totals: dict[str, Total], before: dict[str, Total] | None) -> dict[str, float]:
    """The means of what was observed in between; a count that fell began again at 0."""
    means: dict[str, float] = {}
    for key, (sum_now, count_now) in totals.items() if before is not None else ():
        sum_before, count_before = (before or {}).get(key, (0.0, 0.0))
        if not count_now >= count_before:  # NaN included
            sum_before = count_before = 0.0
        if count_now > count_before:
            means[key] = (sum_now - sum_before) / (count_now - count_before)
    return means


SETTLE_SECONDS = 0.3
LOOKS = 5  # the gauges of a step are set one by one, and the step's own number is not the last of them
VALIDATION = ("val_", "val-")
"""How verl's keys of a validation begin; they stay on the page until the next one, steps later."""


class MonitorPage(Page):
    """Reads until two reads agree.

    What was validated counts once, and alone reports no step: verl validates before it trains.
    """

    source = "rl_insight"

    def __init__(self, address: str, timeout: float = 10) -> None:
        super().__init__(f"http://{address}/metrics", timeout=timeout)
        self._seen_last: dict[str, dict[str, str]] = {}
        self._validated: dict[str, dict[str, float]] = {}

    def poll(self) -> list[Event]:
        events = [self._once(event) if isinstance(event, Record) else event for event in super().poll()]
        self._validated = {run: values for run, values in self._validated.items() if run in self._seen}
        return events

    def _read(self) -> dict[str, Found]:
        runs = super()._read()
        for _ in range(LOOKS):
            now = {run: found.fingerprint() for run, found in runs.items()}
            if now == self._seen_last:
                break
            self._seen_last = now
            time.sleep(SETTLE_SECONDS)
            runs = super()._read()
        return {run: found for run, found in runs.items() if not all(map(_is_validation, found.values))}

    def _once(self, record: Record) -> Record:
        """The record without what was validated for an earlier one."""
        found = {key: value for key, value in record.values.items() if _is_validation(key)}
        before = self._validated.get(record.run, {})
        self._validated[record.run] = found
        old = {key for key, value in found.items() if before.get(key) == value}
        return replace(record, values={key: record.values[key] for key in record.values.keys() - old})


def _is_validation(key: str) -> bool:
    return key.startswith(VALIDATION)
