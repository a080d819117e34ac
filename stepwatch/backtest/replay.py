"""Old logs in a Prometheus of their own, which holds their samples while they are judged."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

import orjson
from tqdm import tqdm

from exporter.http.exposition import escape, number
from exporter.runs.logs.find import Found
from exporter.runs.logs.names import printable, run_names
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.serve.metrics import labels_of, latest, progress, statistics
from exporter.runs.signals import missing
from exporter.runs.signals.record import Event, Record
from exporter.runs.stats.catalogue import JUDGED, STATISTICS
from stepwatch.operate import logfiles
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client, processes
from stepwatch.system.files import last_lines
from stepwatch.system.programs import Program

START = 1_700_006_400
"""When every run is taken to begin, in seconds since the epoch: a full two hours, to fill few blocks."""

Tick = Callable[[], object]
"""Called whenever one more piece of the work is done."""


class Progress:
    """A bar on standard error for each part of the work; nothing where that is not a terminal."""

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator[Callable[[], object]]:
        """Show a part of ``total`` pieces; call what is yielded after each."""
        shown = sys.stderr.isatty()
        with tqdm(desc=what, total=total, leave=False, disable=not shown, file=sys.stderr) as bar:
            yield bar.update

    def say(self, line: str) -> None:
        """Print a line about a download, which may take long."""
        tqdm.write(line, file=sys.stderr)


START_SECONDS = 60
STOP_SECONDS = 30
QUERIES = 2  # queries at once; each takes a core of Prometheus
MOST_POINTS = 10_000  # Prometheus answers at most 11,000 points a series
MOST_SAMPLES = 500_000_000  # in memory for one query: many runs at once are more than its default allows


Task = TypeVar("Task")
Answer = TypeVar("Answer")

NO_RUN = ""
"""The run of a value that belongs to none, such as a number's."""


class ServerError(Refused):
    """Raised when Prometheus cannot be used; holds its last words."""


class Prometheus:
    """Answers queries about the runs that were loaded: ``records`` is how many each has, by its name."""

    def __init__(self, url: str, records: Mapping[str, int]) -> None:
        self._url = url
        self._records = records

    def at(self, expression: str, time: int) -> dict[str, float]:
        """Return the value of an expression for each run at a time."""
        answer = self._ask("query", query=expression, time=time)
        if answer["resultType"] == "scalar":
            return {NO_RUN: float(answer["result"][1])}
        return {_run(each): float(each["value"][1]) for each in answer["result"]}

    def records(self, expression: str) -> dict[str, dict[int, float]]:
        """Return its value at each record of each run (the first is 1), without what lingers after."""
        times = self.over(expression, START, START + max(self._records.values(), default=0))
        return {
            run: {
                time - START: value
                for time, value in values.items()
                if time - START <= self._records.get(run, 0)
            }
            for run, values in times.items()
        }

    def over(self, expression: str, start: int, end: int) -> dict[str, dict[int, float]]:
        """Return its value for each run at each second, where it has one."""
        found: dict[str, dict[int, float]] = {}
        for first in range(start, end + 1, MOST_POINTS):
            last = min(end, first + MOST_POINTS - 1)
            for each in self._ask("query_range", query=expression, start=first, end=last, step=1)["result"]:
                values = found.setdefault(_run(each), {})
                values.update((int(time), float(value)) for time, value in each["values"])
        return found

    def _ask(self, how: str, **asked: Any) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  (our own server)
            f"{self._url}/api/v1/{how}", urllib.parse.urlencode(asked).encode()
        )
        try:
            with http_client.direct.open(request, timeout=600) as answer:
                return dict(orjson.loads(answer.read())["data"])
        except urllib.error.HTTPError as refusal:
            raise ServerError(f"Prometheus refuses {asked['query']}: {refusal.read().decode()}") from refusal


def side_by_side(work: Callable[[Task], Answer], tasks: Iterable[Task], tick: Tick) -> Iterator[Answer]:
    """Yield the answers in the tasks' order, ``QUERIES`` at once; ``tick`` is called after each."""
    with ThreadPoolExecutor(QUERIES) as pool:
        for answer in pool.map(work, tasks):
            yield answer
            tick()


def _run(result: dict[str, Any]) -> str:
    return str(result["metric"].get("run", NO_RUN))


@contextmanager
def loaded(
    server: Program, tool: Program, samples: Iterable[Path], records: Mapping[str, int]
) -> Iterator[Prometheus]:
    """A Prometheus that holds the samples, on a free port of 127.0.0.1. Raises ``ServerError``."""
    with tempfile.TemporaryDirectory(prefix="stepwatch-backtest-") as scratch:
        folder = Path(scratch)
        whole, data, log, settings = (folder / name for name in ("samples", "data", "log", "prometheus.yml"))
        with whole.open("wb") as out:
            for part in samples:
                out.write(part.read_bytes())
            out.write(b"# EOF\n")
        command = (tool.path, "tsdb", "create-blocks-from", "openmetrics", "--quiet", whole, data)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerError(f"{tool.path} cannot make blocks of the samples: {done.stderr.strip()}")
        whole.unlink()
        settings.write_text("global: {}\n")
        address = f"127.0.0.1:{processes.free_port('127.0.0.1')}"
        options = (
            *server.options,
            f"--config.file={settings}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--query.max-samples={MOST_SAMPLES}",
            f"--web.listen-address={address}",
        )
        with log.open("wb") as out:
            process = subprocess.Popen([server.path, *options], stdout=out, stderr=out)
        deadline = time.monotonic() + START_SECONDS
        try:
            while http_client.read(f"http://{address}/-/ready") is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    log_end = "\n".join(last_lines(log, 5))
                    raise ServerError(f"Prometheus does not start:\n{log_end}")
                time.sleep(0.02)
            yield Prometheus(f"http://{address}", records)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


MISSING = "no such file or folder"
EMPTY = "no log found in it. Fix: name logs or their folder: `make backtest RUNS=/path/to/logs`"
SAMPLES = ".samples"
"""How the names of the files of samples end."""

REPEAT_SECONDS = 240
"""A value that stays is written again: Prometheus takes a sample to be valid for five minutes."""

GONE = math.nan
"""Value of a statistic that no longer exists (a resume clears the windows): every comparison is false."""


class Replayed(NamedTuple):
    """A run that was written: the ``steps`` of its records, and what of it rules look at.

    That is its ``signals``, and the raw ``keys`` of users' alerts. ``muted`` are the steps after which the
    log said that it had finished, and of which another followed: until that, no alert fires.
    """

    run: str
    files: tuple[str, ...]
    format: str
    steps: tuple[int, ...]
    signals: tuple[str, ...]
    keys: tuple[str, ...] = ()
    muted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unjudged:
    """A file or folder that could not be judged, and why."""

    run: str
    files: tuple[str, ...]
    error: str


Replays = tuple[Replayed, ...] | Unjudged
"""The runs of one log, or why there are none."""


@dataclass(frozen=True)
class Logs:
    """The logs that users named: ``found`` by the name of their run, ``missing`` paths that hold none."""

    found: tuple[tuple[str, Found], ...]
    missing: tuple[Unjudged, ...]
    asked: frozenset[Path]


def find(paths: Sequence[str], watched: Path) -> Logs:
    """Return the logs in these files, folders and globs."""
    found, bare = logfiles.logs(paths, watched)
    names = run_names({log.path: log.relative for log in found})
    missing = tuple(
        Unjudged(printable(path), (printable(path),), EMPTY if path.exists() else MISSING)
        for path in map(Path, bare)
    )
    asked = frozenset(path.absolute() for path in map(Path, paths) if path.is_file())
    return Logs(tuple((names[log.path], log) for log in found), missing, asked)


def replay(
    logs: Logs, metrics: Collection[str], options: Options, folder: Path, *, jobs: int, tick: Tick
) -> Iterator[Replays]:
    """Write the samples of these metrics into files of a folder, and yield what each log held, in order."""
    work = partial(_replay, metrics=metrics, options=options, folder=folder, asked=logs.asked)
    numbered = list(enumerate(logs.found))
    with ExitStack() as stack:
        several = jobs > 1 and len(numbered) > 1
        done = stack.enter_context(ProcessPoolExecutor(jobs)).map if several else map
        for each in done(work, numbered):
            tick()
            yield each


def _replay(
    log: tuple[int, tuple[str, Found]],
    metrics: Collection[str],
    options: Options,
    folder: Path,
    asked: frozenset[Path],
) -> Replays:
    index, (name, found) = log
    samples = folder / f"{index}{SAMPLES}"
    try:
        return write(found, name, metrics, options, samples)
    except logfiles.UnreadError as problem:
        samples.unlink()
        asked_for = not asked.isdisjoint(part.absolute() for part in found.parts)
        if isinstance(problem, logfiles.NoRunError) and not asked_for:
            return ()
        return Unjudged(name, tuple(map(printable, found.parts)), str(problem))


def write(
    found: Found, name: str, metrics: Collection[str], options: Options, out: Path
) -> tuple[Replayed, ...]:
    """Write the samples of a log's runs; record k (from 1) at ``START`` + k. Raises ``UnreadError``."""
    with out.open("w", encoding="utf-8") as samples:
        writers: dict[str, _Writer] = {}
        begin = partial(_Writer, name, frozenset(metrics), samples)
        logfiles.read(found, options, partial(_Recorder, writers, begin))
        for writer in writers.values():
            if writer.steps:
                writer.write()
    files = tuple(map(printable, found.parts))
    return tuple(
        Replayed(
            writer.name,
            files,
            writer.run.source,
            tuple(writer.steps),
            tuple(signal for signal in writer.run.latest if signal in JUDGED),
            tuple(writer.run.raw.values().keys() & {*options.own.keys}),
            tuple(writer.muted),
        )
        for writer in writers.values()
    )


class _Writer:
    """Writes the samples of one run. What is logged of one step in a row is one record of it."""

    def __init__(self, log: str, metrics: Collection[str], out: TextIO, name: str, run: Run) -> None:
        self.name, self.run = "/".join(filter(None, (log, name))), run
        self.steps: list[int] = []
        self.muted: list[int] = []
        self._label = f'run="{escape(self.name)}"'
        self._metrics = metrics
        self._out = out
        self._written: dict[str, tuple[float, int]] = {}
        self._series = {
            statistic: f"{statistic.metric}{{{self._label}{labels_of(statistic)}}}"
            for statistic in (*STATISTICS, *run.options.own.statistics)
            if statistic.metric in metrics
        }

    def write(self) -> None:
        """Write what is served after the last record, as far as it has changed."""
        now = START + len(self.steps)
        served = {
            f"{metric}{{{self._label}}}": value
            for metric, value in (*progress(self.run), *latest(self.run))
            if metric in self._metrics
        }
        if run_keys := self.run.options.own.keys:
            raw = self.run.raw.values()
            served |= {f'rl_raw{{{self._label},key="{key}"}}': raw[key] for key in run_keys if key in raw}
        if missing.METRIC in self._metrics:
            served |= {
                f'{missing.METRIC}{{{self._label},signal="{each.signal}",reason="{each.reason}"}}': 1.0
                for each in self.run.missing()
            }
        served |= {self._series[each]: value for each, value in statistics(self.run) if each in self._series}
        for series, value in served.items():
            before, since = self._written.get(series, (None, 0))
            if value != before or now - since >= REPEAT_SECONDS:
                self._out.write(f"{series} {number(value)} {now}\n")
                self._written[series] = (value, now)
        for series in self._written.keys() - served.keys():
            self._out.write(f"{series} {number(GONE)} {now}\n")
            del self._written[series]


class _Recorder(RunSet):
    """The runs of a log; each record is written before the next one of another step is taken."""

    def __init__(
        self, writers: dict[str, _Writer], begin: Callable[[str, Run], _Writer], *about: Any, **known: Any
    ) -> None:
        super().__init__(*about, **known)
        self._writers, self._begin_writer = writers, begin

    def take(self, event: Event, clock: Clock) -> None:
        if not isinstance(event, Record):
            super().take(event, clock)
            return
        writer = self._writers.get(event.run)
        over = None
        if writer and writer.steps and writer.steps[-1] != event.step:
            writer.write()
            run = writer.run
            if run.made_all_steps or (run.ended and run.ended.state == "finished"):
                over = run.restarts
        super().take(event, clock)
        writer = self._writers.get(event.run)
        if writer and writer.run.restarts == over:
            writer.muted.append(writer.steps[-1])
        if writer and writer.steps[-1:] != [event.step]:
            writer.steps.append(event.step)

    def _begin(self, name: str) -> Run:
        run = super()._begin(name)
        run.watched = True  # so that the rules' statistics are served
        self._writers[name] = self._begin_writer(name, run)
        return run
