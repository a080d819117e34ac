"""``python -m stepwatch tensorboard``: every run as a folder of TensorBoard's event files, live if wanted."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from threading import Event, Thread
from typing import NamedTuple

from exporter import credentials
from exporter.alert_labels import ONSET_STEP
from exporter.runs import cli
from exporter.runs.collector import Collector
from exporter.runs.model.run import Clock, Run
from exporter.runs.overview.models import Firing, RunId
from exporter.runs.overview.prometheus import Client, Span
from exporter.runs.pages.web import PollError
from exporter.runs.serve.views import View
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.record import Record, number
from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.deploy.native.state import State
from stepwatch.operate.event_files import Point, RunFolder
from stepwatch.render import exporters
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.files import lock
from stepwatch.system.terminal import Say

SIGNALS = "rl/"
"""Before the names of our signals, which are the same for every trainer."""
ALERTS = "alerts/"
OWN = ".stepwatch"
"""The folder in which an export keeps what it needs to go on."""
POLL_SECONDS = 0.5
TARGET_SECONDS = 10.0  # in which a page or a server has answered that is polled
MOST_RUNS = 10_000
FOREVER = 100 * 365 * 86400.0
PAST_SECONDS = 14 * 86400.0  # longer, Prometheus keeps nothing by default (storage.retention)
MOST_POINTS = 5000
RECENT_SECONDS = 120.0
INTERVAL_SECONDS = 2.0
FINEST_SECONDS = 5.0


def tensorboard(config: Path, to: Path, runs: Path | None, place: State, say: Say, *, follow: bool) -> int:
    """Export all runs to a folder, or go on where an earlier export to it ended. Raises ``Refused``."""
    settings = load(config)
    as_served = exporters.runs(settings, OnThisMachine(settings))

    def watched(states: Path) -> cli.Settings:
        return cli.Settings(
            path=(str(runs.absolute()),) if runs else place.log_folders(settings.runs.path, say),
            state_dir=states,
            forget_after=FOREVER,
            signals=keys_of(settings.signals),
            pages=cli.pages(as_served["pages"]),
            mlflow=cli.servers(as_served["mlflow"]),
            poll=as_served["poll"],
        )

    if follow:
        say(f"Exporting to {to} until Ctrl-C. To see it: tensorboard --logdir {to}")
    address = settings.address("prometheus")
    alerts = Alerts(f"http://{address}", partial(_login, address))
    written = export(to, watched, alerts, say, follow=follow)
    say(f"{len(written)} runs in {to}, {sum(written.values()) / 1e6:.1f} MB written.")
    return 0


class Recorder:
    """Keeps the records of each run until its name is known, in little memory."""

    def __init__(self) -> None:
        self._points: dict[int, list[Point]] = {}
        self._tags: dict[tuple[str, ...], tuple[str, ...]] = {}

    def note(self, run: Run, record: Record, found: Mapping[str, float], clock: Clock) -> None:
        """Take a record: the trainer's own keys, then our signals."""
        run.watched = True  # one that ended badly before is a run as any other
        values: dict[str, float] = {}
        for name, raw in record.values.items():
            value = number(raw)
            if value is not None:
                values[name] = value
        for name, value in found.items():
            values.setdefault(f"{SIGNALS}{name}", value)
        if not values:
            return
        tags = tuple(values)
        tags = self._tags.setdefault(tags, tags)
        at = clock.of(record)
        at = clock.wall - max(0.0, clock.late) if at is None else at
        point = Point(run.restarts, at, record.step, tags, array("f", values.values()))
        self._points.setdefault(run.serial, []).append(point)

    def of(self, run: Run) -> list[Point]:
        """The records of a run since the last call."""
        return self._points.pop(run.serial, [])


class Export:
    """Writes what a collector finds."""

    def __init__(
        self, to: Path, settings: cli.Settings, recorder: Recorder, alerts: Alerts | None, say: Say
    ) -> None:
        self._to, self._recorder, self._alerts, self._say = to, recorder, alerts, say
        self._collector = Collector(settings, recorder=recorder.note, most_runs=MOST_RUNS)
        self._polled = bool(settings.pages or settings.mlflow)
        self._folders: dict[str, RunFolder] = {}
        self._said: set[str] = set()

    def run(self, *, follow: bool, stopped: Callable[[], bool]) -> None:
        """Write all runs; with ``follow`` go on until stopped. Raises ``Refused``."""
        self._collector.start()
        if self._alerts is not None:
            self._alerts.ask()
            if follow:
                self._alerts.start()
        until = time.monotonic() + (TARGET_SECONDS if self._polled else 0)
        try:
            while not stopped():
                more = self._collector.look()
                if self._collector.caught_up:  # before, one run may look like two
                    self._write()
                if not follow and self._collector.caught_up and not more and time.monotonic() >= until:
                    break
                if not more:
                    time.sleep(POLL_SECONDS)
        finally:
            self._collector.save()
            for folder in self._folders.values():
                folder.close()

    def _write(self) -> None:
        try:
            with self._collector.views() as views:
                for view in views:
                    for point in self._new(view):
                        if view.name not in self._folders:
                            self._folders[view.name] = RunFolder(self._to / folder_of(view.name))
                        self._folders[view.name].add(point)
            if self._alerts is not None:
                if self._alerts.problem:
                    self._once(f"Alerts are missing while Prometheus does not answer: {self._alerts.problem}")
                for onset in self._alerts.onsets():
                    if onset.run in self._folders:
                        tag = f"{ALERTS}{onset.alert}"
                        self._folders[onset.run].add_text(onset.at, onset.step, tag, onset.words)
            for folder in self._folders.values():
                folder.write()
        except OSError as problem:
            raise unwritable(self._to, problem) from None

    @property
    def written(self) -> dict[str, int]:
        """The bytes that were written of each run."""
        return {name: folder.written for name, folder in self._folders.items()}

    def _new(self, view: View) -> Iterable[Point]:
        """The new records of a run that is shown; of one that is TensorBoard's already, only our signals."""
        new = self._recorder.of(view.run)
        for other in view.duplicates:  # the same numbers in another log
            self._recorder.of(other)
        if any(run.source == "tensorboard" for run in (view.run, *view.duplicates)):
            self._once(f"{view.name}: logged to TensorBoard already, so its own keys are not exported.")
            return map(_signals, new)
        return new

    def _once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def _signals(point: Point) -> Point:
    """A record without the trainer's own keys."""
    ours = [place for place, tag in enumerate(point.tags) if tag.startswith(SIGNALS)]
    tags = tuple(point.tags[place] for place in ours)
    return point._replace(tags=tags, numbers=array("f", (point.numbers[place] for place in ours)))


def folder_of(name: str) -> PurePosixPath:
    """The folder of a run below that of all, which no name leads out of."""
    parts = (part for part in name.split("/") if part)
    safe = (f"_{part}" if part.startswith(".") else part[:200] for part in parts)
    return PurePosixPath(*safe) if name.strip("/") else PurePosixPath("run")


def unwritable(to: Path, problem: OSError) -> Refused:
    """The error about a folder that cannot be written to."""
    return Refused(
        f"--to {to}: cannot be written ({problem.strerror}). Expected: a folder with room. "
        "Fix: make room there, or name another folder."
    )


def export(
    to: Path,
    settings: Callable[[Path], cli.Settings],
    alerts: Alerts | None,
    say: Say,
    *,
    follow: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, int]:
    """Export all runs to a folder, or go on where an earlier export to it ended. Raises ``Refused``."""
    recorder, own = Recorder(), to / OWN
    watched = settings(own / "state")
    for path in watched.path:
        if Path(os.path.realpath(to)).is_relative_to(os.path.realpath(path)):
            raise Refused(
                f"--to {to}: lies in {path}, whose files are read as logs of runs. Expected: a folder of its "
                "own. Fix: name one outside, such as ./tensorboard."
            )
    try:
        own.mkdir(parents=True, exist_ok=True)
        handle = os.open(own / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise unwritable(to, problem) from None
    try:
        if not lock(handle, wait=False):
            raise Refused(f"--to {to}: another export writes to it. Fix: end that, or name another folder.")
        exporting = Export(to, watched, recorder, alerts, say)
        with suppress(KeyboardInterrupt):
            exporting.run(follow=follow, stopped=stopped)
        return exporting.written
    finally:
        if alerts is not None:
            alerts.stop()
        os.close(handle)


class Onset(NamedTuple):
    """An alert about a run: the step of its onset, and when that was seen, in seconds since the epoch."""

    run: str
    alert: str
    step: int
    at: float
    words: str


def _login(address: str) -> Mapping[str, str]:
    password = http_client.password_of(address)
    return {"Authorization": credentials.authorization(password)} if password else {}


class Alerts:
    """Asks Prometheus in the background; ``onsets`` are new ones, ``problem`` is why it does not answer."""

    def __init__(self, prometheus: str, login: Callable[[], Mapping[str, str]] = dict) -> None:
        self.problem = ""
        self._client = Client(prometheus, login=login)
        self._found: SimpleQueue[Onset] = SimpleQueue()
        self._stop = Event()
        self._since = time.time() - PAST_SECONDS

    def start(self) -> None:
        """Begin to ask."""
        Thread(target=self._run, name="alerts", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def onsets(self) -> Iterator[Onset]:
        """Yield what was found since the last call, some of it again."""
        while not self._found.empty():
            yield self._found.get()

    def ask(self) -> None:
        """Ask once for all since the last good answer."""
        now = time.time()
        try:
            span = Span(RunId(""), self._since, now)
            every = span.interval(MOST_POINTS)
            # However short an alert was, one point looks back over the time to the one before.
            labels, window = "run, alertname, severity", f"[{max(2 * FINEST_SECONDS, every):.0f}s]"
            promql = (
                f"max by ({labels}) (last_over_time({ONSET_STEP}{window}))"
                f' and max by ({labels}) (last_over_time(ALERTS{{alertstate="firing"}}{window}))'
            )
            found = self._client.series(promql, span, every)
            firing = self._client.firing()
        except PollError as problem:
            self.problem = str(problem)
            return
        self.problem, self._since = "", now - RECENT_SECONDS
        for series, points in found:
            for onset in _onsets(series, points, firing):
                self._found.put(onset)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.ask()
            self._stop.wait(INTERVAL_SECONDS)


def _onsets(
    labels: Mapping[str, str], points: Sequence[tuple[float, float]], firing: Mapping[RunId, Sequence[Firing]]
) -> Iterator[Onset]:
    run, alert, severity = (labels.get(name, "") for name in ("run", "alertname", "severity"))
    before = None
    for at, step in points:
        if step != before:
            now = next(
                (one for one in firing.get(RunId(run), ()) if (one.name, one.severity) == (alert, severity)),
                None,
            )
            yield Onset(run, alert, int(step), at, _words(alert, severity, int(step), now))
        before = step


def _words(alert: str, severity: str, step: int, firing: Firing | None) -> str:
    """A text in Markdown. The description of an ended alert is no longer known."""
    head = f"**{alert}** ({severity}) from step {step}"
    if firing is None:
        return head
    rest = (firing.summary, firing.description, firing.action, firing.runbook)
    return "\n\n".join(filter(None, (head, *rest)))
