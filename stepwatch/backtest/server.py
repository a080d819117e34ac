"""A Prometheus of its own that holds the samples of old runs while they are judged."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
from tqdm import tqdm

from stepwatch.programs.programs import Program
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client, processes
from stepwatch.system.files import last_lines

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

QUERIES = 2
"""Queries at once; each takes a core of Prometheus."""

MOST_POINTS = 10_000
"""Prometheus answers at most 11,000 points a series."""

MOST_SAMPLES = 500_000_000
"""In memory for one query: many runs at once are more than its default allows."""


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
        """Return its value at each record of each run, where it has one; the first record is 1.

        For some minutes Prometheus shows the last sample of a run that has no more: that is left out.
        """
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
    """A Prometheus that holds the samples, on a free port of 127.0.0.1.

    Args:
        server: Prometheus.
        tool: promtool, of the same version.
        samples: Files of samples.
        records: How many records each run in them has, by its name.

    Raises:
        ServerError: it does not take them, or does not start.
    """
    with tempfile.TemporaryDirectory(prefix="stepwatch-backtest-") as scratch:
        folder = Path(scratch)
        _load(tool, samples, folder)
        with _running(server, folder) as url:
            yield Prometheus(url, records)


def _load(tool: Program, samples: Iterable[Path], folder: Path) -> None:
    whole = folder / "samples"
    with whole.open("wb") as out:
        for part in samples:
            out.write(part.read_bytes())
        out.write(b"# EOF\n")
    command = (tool.path, "tsdb", "create-blocks-from", "openmetrics", "--quiet", whole, folder / "data")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{tool.path} cannot make blocks of the samples: {done.stderr.strip()}")
    whole.unlink()


@contextmanager
def _running(server: Program, folder: Path) -> Iterator[str]:
    address = f"127.0.0.1:{processes.free_port('127.0.0.1')}"
    (folder / "prometheus.yml").write_text("global: {}\n")
    command = [
        *server.options,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--query.max-samples={MOST_SAMPLES}",
        f"--web.listen-address={address}",
    ]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([server.path, *command], stdout=out, stderr=out)
    deadline = time.monotonic() + START_SECONDS
    try:
        while http_client.read(f"http://{address}/-/ready") is None:
            if process.poll() is not None or time.monotonic() > deadline:
                log_end = "\n".join(last_lines(log, 5))
                raise ServerError(f"Prometheus does not start:\n{log_end}")
            time.sleep(0.02)
        yield f"http://{address}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
