"""The page of all runs. A run's text is rendered again only when it changed or a held extreme expired."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from exporter.http.exposition import Family, Sample, escape, header, lines, number
from exporter.runs import signals
from exporter.runs.files.launch import Launch
from exporter.runs.model.ends import ENDED_BADLY
from exporter.runs.model.run import Run
from exporter.runs.serve.views import View
from exporter.runs.signals import missing
from exporter.runs.signals.unmapped import USUAL_LIMIT
from exporter.runs.stats.catalogue import (
    MOST_SERIES,
    RUN_FAMILIES,
    STATES,
    STATISTIC_HELP,
    Hold,
    Statistic,
)
from exporter.runs.stats.statistics import is_measured

FAMILIES: tuple[Family, ...] = (
    *RUN_FAMILIES,
    *(Family(f"rl_{signal.name}", "gauge", signal.help) for signal in signals.SIGNALS),
    *(Family(f"rl_{signal.name}", "gauge", signal.help) for signal in signals.PART_SIGNALS),
    Family("rl_raw", "gauge", "Last value under a key of the trainer that no signal uses."),
    Family("rl_raw_keys_refused_total", "counter", "Keys dropped at the limit of keys per run."),
    *(Family(f"rl_{name}", "gauge", text) for name, text in STATISTIC_HELP.items()),
)
"""Every metric about runs, in the order in which they are written."""

_HEADERS = {family.name: header(family) for family in FAMILIES}


@cache
def labels_of(statistic: Statistic) -> str:
    """Return what stands behind the run's name between the braces."""
    return "".join(f',{name}="{escape(value)}"' for name, value in statistic.labels.items())


Chunks = dict[str, str]  # lines of one run by metric name
MOST_KNOWN = 1024  # runs whose samples are remembered: a run is rendered at each of its steps


@dataclass(frozen=True)
class Override:
    """Limits of config.yaml, by block and key, for runs that the pattern fits; NaN takes one away."""

    runs: re.Pattern[str]
    limits: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Override:
        """Return the override that JSON describes, in which null is NaN. Raises ValueError."""
        try:
            limits = {
                str(block): {
                    str(key): float("nan" if value is None else value) for key, value in keys.items()
                }
                for block, keys in found["limits"].items()
            }
            return cls(re.compile(found["runs"], re.DOTALL), limits)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, re.error) as problem:
            raise ValueError(
                f'{found!r} is not an override. Expected one such as {{"runs": "sft-.*", "limits": '
                f'{{"KL": {{"enabled": 0}}}}}} ({problem!r})'
            ) from problem


class Overrides:
    """All overrides; of those that fit a run and name a block, the first one counts."""

    def __init__(self, overrides: Sequence[Override] = ()) -> None:
        self._overrides = tuple(overrides)
        self._known: dict[str, list[Sample]] = {}

    def samples(self, run: str) -> list[Sample]:
        """Return the samples of ``rl_limit_override`` of a run, by its name."""
        if run not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found: dict[str, Mapping[str, float]] = {}
            for override in self._overrides:
                if override.runs.fullmatch(run):
                    found = {**override.limits, **found}
            self._known[run] = [
                ({"limit": f"{block}.{key}"}, value)
                for block, limits in found.items()
                for key, value in limits.items()
            ]
        return self._known[run]


NO_OVERRIDES = Overrides()


class RunText:
    """The text of one run, kept until it changes."""

    def __init__(self, overrides: Overrides = NO_OVERRIDES) -> None:
        self._overrides = overrides
        self._key: tuple[object, ...] = ()
        self._until = float("inf")
        self._chunks: Chunks = {}

    def chunks(self, view: View, now: float) -> Chunks:
        """The run's lines; ``now`` in seconds of the clock that records arrive by."""
        run = view.run
        facts = (view.name, view.state, view.writer, view.unread, view.gpus, view.launch)
        versions = sum(each.version for each in view.duplicates)
        key = (run.version, versions, run.times.last, run.watched, *facts)
        if key != self._key or now > self._until:
            self._chunks, self._until = _render(view, now, self._overrides)
            self._key = key
        return self._chunks


def _render(view: View, now: float, overrides: Overrides) -> tuple[Chunks, float]:
    run, label = view.run, f'run="{escape(view.name)}"'
    chunks = {family: lines(family, label, samples) for family, samples in _facts(view)}
    chunks["rl_limit_override"] = lines("rl_limit_override", label, overrides.samples(view.name))
    for metric, value in latest(run):
        chunks[metric] = f"{metric}{{{label}}} {number(value)}\n"
    expiry = float("inf")
    values: dict[Statistic, float] = {}
    for each in (run, *view.duplicates):
        for statistic, present in statistics(each) if each is run else _streaks(each):
            if statistic.hold is not Hold.NONE and not each.watched:
                continue
            held = each.held.get(statistic)
            value = held.value(now, present) if held else present
            expiry = min(expiry, held.expires()) if held else expiry
            values[statistic] = value if each is run else max(value, values.get(statistic, value))
    for statistic, value in values.items():
        line = f"{statistic.metric}{{{label}{labels_of(statistic)}}} {number(value)}\n"
        chunks[statistic.metric] = chunks.get(statistic.metric, "") + line
    room = (
        MOST_SERIES
        + max(0, run.options.raw.limit - USUAL_LIMIT)
        - sum(chunk.count("\n") for chunk in chunks.values())
    )
    chunks |= {family: lines(family, label, samples) for family, samples in _others(run, room)}
    return chunks, expiry


def latest(run: Run) -> Iterator[tuple[str, float]]:
    """The metric and the last value of each signal that the trainer measures."""
    for signal, value in run.latest.items():
        if is_measured(signal, run.statistics):
            yield f"rl_{signal}", value


def statistics(run: Run) -> Iterator[tuple[Statistic, float]]:
    """The statistics of the signals that the trainer measures, as they are now."""
    for signal, of_signal in run.statistics.items():
        if of_signal.begun and is_measured(signal, run.statistics):
            for statistic, read in of_signal.readers:
                present = read()
                if present is not None:
                    yield statistic, present


def _streaks(duplicate: Run) -> Iterator[tuple[Statistic, float]]:
    """Records in a row with NaN or Inf: the JSON lines of prime-rl leave out what its console reports."""
    for of_signal in duplicate.statistics.values():
        if of_signal.nonfinite:
            for statistic, read in of_signal.readers:
                if statistic.name == "nonfinite_streak_steps" and (present := read()) is not None:
                    yield statistic, present


def _facts(view: View) -> Iterable[tuple[str, list[Sample]]]:
    run, times = view.run, view.run.times
    yield "rl_run_info", [({"framework": run.reading.framework, "source": run.source}, 1)]
    yield "rl_run_state", [({"state": state}, state == view.state) for state in STATES]
    yield "rl_run_writer_present", _maybe(view.writer)
    if view.launch is not None:
        yield from _of_wrapper(view.launch, view.state)
    elif view.state in ENDED_BADLY and (cause := _cause(view)):
        yield "rl_run_exit_info", [({"cause": cause, "exit_code": "", "signal": "", "requested": "false"}, 1)]
    yield from ((name, _maybe(value)) for name, value in progress(run))
    yield "rl_total_steps", _maybe(run.total)
    yield "rl_resumes_total", _maybe(run.resumes)
    yield "rl_restarts_total", _maybe(run.restarts)
    yield "rl_resume_lost_steps", _maybe(run.lost)
    yield "rl_run_mark_timestamp_seconds", [({"note": mark.note}, mark.time) for mark in run.marks.all]
    # Of a log that cannot be read no one knows when the last step was: no rule may take it for silent.
    yield "rl_last_step_timestamp_seconds", _maybe(times.last if view.unread is None else None)
    yield "rl_run_unread_since_timestamp_seconds", _maybe(view.unread)
    yield "rl_run_start_timestamp_seconds", _maybe(times.start)
    yield "rl_step_interval_typical_seconds", _maybe(times.pace.typical())
    yield (
        missing.METRIC,
        [({"signal": name, "reason": reason, "setting": line}, 1) for name, reason, line in run.missing()],
    )
    namespace = {"pid_namespace": view.gpus.namespace}
    yield "rl_run_gpu_process_info", [({"pid": str(pid), **namespace}, 1) for pid in view.gpus.processes]
    yield "rl_run_node_gpu_info", [({"uuid": uuid}, 1) for uuid in view.gpus.node]


def _cause(view: View) -> str:
    """Why the run ended, as the last words of any of its logs name it; empty if none does."""
    ends = (run.ended for run in (view.run, *view.duplicates))
    return next((ended.cause for ended in ends if ended and ended.cause), "")


def _of_wrapper(launch: Launch, state: str) -> Iterable[tuple[str, list[Sample]]]:
    """What the wrapper of `stepwatch run` knows; of attempts, while the run is running."""
    if launch.cause:
        code = "" if launch.exit_code is None else str(launch.exit_code)
        requested = "true" if state == "stopped" else "false"
        labels = {"cause": launch.cause, "exit_code": code, "signal": launch.signal, "requested": requested}
        yield "rl_run_exit_info", [(labels, 1)]
    if state == "running" and launch.retry:
        yield "rl_run_retry_info", [({"cause": launch.retry.text}, 1)]
        if launch.waits:
            yield "rl_run_retry_timestamp_seconds", _maybe(launch.retry.at)
    yield "rl_run_retries_total", _maybe(launch.retries)
    yield "rl_run_checkpoint_step", [({"checkpoint": each.name}, each.step) for each in launch.checkpoints]


def _others(run: Run, room: int) -> Iterable[tuple[str, list[Sample]]]:
    """What no rule looks at, first come first served: as many series as there is room for."""
    room = max(0, room - 1)  # keys that are left out are counted
    counts = {name: signal.nonfinite for name, signal in run.statistics.items() if signal.nonfinite}
    found: dict[str, list[Sample]] = {}
    found["rl_nonfinite_steps_total"] = [({"signal": name}, count) for name, count in counts.items()]
    for signal in signals.PART_SIGNALS:
        of_signal = {part: value for (name, part), value in run.parts.items() if name == signal.name}
        found[f"rl_{signal.name}"] = [({signal.label: part}, value) for part, value in of_signal.items()]
    for family, samples in found.items():
        yield family, samples[:room]
        room -= len(samples[:room])
    yield "rl_raw", [({"key": key}, value) for key, value in run.raw.values(room).items()]
    yield "rl_raw_keys_refused_total", [({}, len(run.raw.refused))]


def progress(run: Run) -> Iterator[tuple[str, float]]:
    """How far the run has come: metrics and their values."""
    at = run.progress
    if at.step >= 0:
        yield "rl_step", at.step
    if at.since is not None:
        yield "rl_steps_seen", at.highest - at.since + 1
    yield "rl_records_seen", at.seen
    yield "rl_records_total", run.records


def _maybe(value: float | None) -> list[Sample]:
    return [] if value is None else [({}, value)]


def page(runs: Iterable[Chunks], health: Iterable[tuple[Family, list[Sample]]]) -> bytes:
    """The whole page: each metric once, with the lines of all runs below it."""
    all_runs = list(runs)
    parts: list[str] = []
    for name, above in _HEADERS.items():
        below = [chunk for chunks in all_runs if (chunk := chunks.get(name))]
        if below:
            parts += [above, *below]
    for family, samples in health:
        parts += [header(family), lines(family.name, "", samples)]
    return "".join(parts).encode()
