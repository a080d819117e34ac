"""One attempt of `stepwatch run`: starts the trainer once and handles it until its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from exporter.runs.files.launch import Answer, Retry
from stepwatch.launch.failures import Outcome, classify
from stepwatch.launch.keeper import GRACE_SECONDS, Keeper, Report, descendants, end_all
from stepwatch.launch.record import POLL_SECONDS, LaunchRecord, Requests
from stepwatch.launch.retries import End
from stepwatch.launch.streams import Streams
from stepwatch.schema.errors import Refused

STOP_SECONDS = 120.0
"""Ray itself gives a job some seconds to end by SIGTERM."""


class RayJob:
    """Where jobs are submitted, and the last one."""

    def __init__(self, address: str, working_dir: str | None = None) -> None:
        self._address, self._working_dir = address, working_dir
        self._id = ""

    def submit(self, command: Sequence[str]) -> list[str]:
        """Return the command that submits a trainer as a new job, shows its output and ends with it."""
        self._id = f"stepwatch-{uuid.uuid4().hex[:12]}"
        options = ["--address", self._address, "--submission-id", self._id]
        if self._working_dir:
            options += ["--working-dir", self._working_dir]
        return ["ray", "job", "submit", *options, "--", *command]

    def begin_stop(self) -> subprocess.Popen[bytes]:
        """Have the cluster stop the job; the process ends once it has ended, with exit code 0."""
        stop = ["ray", "job", "stop", "--address", self._address, self._id]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(stop, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)

    def stop(self) -> bool:
        """Have the cluster stop the job, and wait for its end; returns whether it is known to have ended."""
        try:
            return self.begin_stop().wait(STOP_SECONDS) == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


DRAIN_SECONDS = 2.0
"""How long what the trainer left behind may go on writing after it."""
PATIENCE_SECONDS = 1.0
"""How long a reader of the output may keep a trainer waiting that was told to end."""
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_PASSED_ON = (*FROM_TERMINAL, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


class Attempt:
    """One attempt of the trainer."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        record: LaunchRecord,
        retry: Retry | None = None,
        job: RayJob | None = None,
    ) -> None:
        self._record, self._retry, self._job = record, retry, job
        self._command = job.submit(command) if job else command
        self._stopping: subprocess.Popen[bytes] | None = None
        self._streams, self._log = Streams(log), log
        self._requests, self._asked = Requests(log), 0.0
        self._pid: int | None = None
        self._keeper: int | None = None
        self._stopped: Answer | None = None
        self._interrupted = ""

    def run(self) -> End:
        """Returns how the trainer ended. Raises Refused if it cannot be started."""
        wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        heard = (*_PASSED_ON, signal.SIGWINCH, signal.SIGCHLD)
        inherited = {number: signal.getsignal(number) for number in heard}
        ignored = {number for number, handler in inherited.items() if handler is signal.SIG_IGN}

        def connect() -> None:
            for number in ignored:  # nohup
                signal.signal(number, signal.SIG_IGN)
            self._streams.connect()

        keeper = Keeper(self._command, connect, self._orphaned_trainer)
        try:
            for number in inherited.keys() - ignored:
                signal.signal(number, lambda *_: None)
            signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
            self._keeper = keeper.pid
            self._started(keeper.report())
            outcome = self._accompany(keeper, wakes)
            if self._interrupted and self._stopping:  # Ray calls that a success
                outcome = Outcome(signal.Signals[self._interrupted])
            typed = "Ctrl-C" if self._streams.interrupted else ""
            if typed and self._job:
                self._job.stop()
            failure = classify(self._streams.tail, outcome) if outcome.status else None
            return End(outcome, failure, self._stopped, self._interrupted or typed)
        finally:
            signal.set_wakeup_fd(-1)
            self._streams.close()
            keeper.close()
            for number in inherited.keys() - ignored:
                signal.signal(number, inherited[number])
            os.close(wakes)
            os.close(wake)

    def _orphaned_trainer(self, outcome: Outcome) -> None:
        """The wrapper was killed, and the keeper has ended the trainer."""
        self._record.orphaned(outcome)
        if self._job:
            self._job.stop()

    def _started(self, report: Report | None) -> None:
        if report is None or report.pid is None:
            for file in (self._log, self._record.path):
                if not file.stat().st_size:
                    file.unlink()
            reason = os.strerror(report.errno) if report and report.errno else "its parent was killed"
            fix = "activate the environment that has Ray" if self._job else "check the command after --"
            raise Refused(f"{self._command[0]} cannot be started: {reason}. Fix: {fix}.")
        self._pid = report.pid
        self._record.start(self._command, self._retry)
        self._streams.started()

    def _accompany(self, keeper: Keeper, wakes: int) -> Outcome:
        outcome: Outcome | None = None
        until = taken = time.monotonic()
        while outcome is None or (self._streams.open and time.monotonic() < until):
            others = [wakes] if outcome else [wakes, keeper.reports]
            ready, behind = self._streams.copy(others, 0.1 if outcome else POLL_SECONDS)
            if wakes in ready:
                for number in os.read(wakes, 4096):
                    if number in (*FROM_TERMINAL, signal.SIGTERM):
                        self._interrupted = signal.Signals(number).name
                    self._pass_on(number)
            if keeper.reports in ready:
                report = keeper.report()
                outcome = report.outcome if report else self._orphaned()
            if outcome is None:
                self._take_request()
            now = time.monotonic()
            if not behind:
                taken = now
            elif (self._stopped or self._interrupted) and now > taken + PATIENCE_SECONDS:
                self._streams.leave_reader()
            if behind or keeper.reports in ready:
                until = now + DRAIN_SECONDS
        return outcome

    def _orphaned(self) -> Outcome:
        """The keeper was killed: what it kept is this process's now."""
        statuses = end_all(GRACE_SECONDS)
        return Outcome(statuses.get(self._pid or 0, signal.SIGKILL))

    def _take_request(self) -> None:
        """Carry out the next request, if a check is due and there is one."""
        if time.monotonic() < self._asked + POLL_SECONDS:
            return
        self._asked = time.monotonic()
        if not (found := self._requests.take(self._record.attempt)):
            return
        request, refused = found
        answer = Answer.to(request, refused)
        if not refused:
            self._stopped = answer
            if request.action == "stop" or self._job:
                self._pass_on(signal.SIGTERM)
            else:
                # Kill all processes of the trainer, including ones that start meanwhile.
                reached: set[int] = set()
                while left := set(descendants(os.getpid())) - reached - {self._keeper}:
                    for pid in left:
                        with suppress(ProcessLookupError, PermissionError):
                            os.kill(pid, signal.SIGKILL)
                    reached |= left
        self._record.answer(answer)

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGWINCH:
            self._streams.resize()
        elif self._job and number in (*FROM_TERMINAL, signal.SIGTERM):
            # The program that submitted it would end alone.
            if self._stopping is None or self._stopping.poll() is not None:
                self._stopping = self._job.begin_stop()
        elif number in _PASSED_ON and self._pid is not None:
            # A terminal's signals are for all of its foreground, others for the program alone.
            send = os.killpg if number in FROM_TERMINAL else os.kill
            with suppress(ProcessLookupError):
                send(self._pid, number)
