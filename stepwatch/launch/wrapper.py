"""`stepwatch run`: runs a trainer as if it was called directly, logs its output, and retries it.

The road: `run` starts the checkpoints' watcher and, through `kept`, a process for the attempts; each attempt
starts the trainer in a session of its own, obeys signals and requests, and classifies the end.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import termios
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from exporter.runs.files.launch import Answer, Retry
from stepwatch.launch import layouts
from stepwatch.launch.keeper import (
    ENDING,
    GRACE_SECONDS,
    PASSED_ON,
    TO_GROUP,
    descendants,
    end_all,
    end_with_parent,
    kept,
    send,
)
from stepwatch.launch.record import LOOK_SECONDS, End, Record, oom_kills
from stepwatch.launch.retries import Retries
from stepwatch.launch.streams import Log, Output, Streams, read
from stepwatch.schema.errors import Refused
from stepwatch.schema.failures import classify

if TYPE_CHECKING:
    from stepwatch.config.retry import RetryPolicy

POLL_SECONDS = 0.05
DRAIN_SECONDS = 2.0
"""How long what the trainer left behind may go on writing after it."""
STOP_SECONDS = 120.0
"""Ray itself gives a job some seconds to end by SIGTERM."""
LAST_SECONDS = 60.0
"""For the watcher's last look, after the trainer: no rotation is to be feared any more."""
_LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}


@dataclass(frozen=True)
class Options:
    """What the command line says, beside the trainer and its log."""

    policy: RetryPolicy | None = None
    dry: bool = False  # only say what the policy would do
    ray: str | None = None  # the address of the cluster to submit the trainer to
    working_dir: str | None = None
    checkpoints: Path | None = None  # their folder; None for what the trainer's command line says
    keep: int | None = None  # how many of the best to keep; None for what the configuration file says
    config: Path | None = None


def run(command: Sequence[str], runs: Path, name: str | None, options: Options) -> int:
    """Run a trainer to its end as if called directly; returns its exit code, or dies of the same signal."""
    name = name or f"{default_name(command)}-{time.strftime('%Y%m%d-%H%M%S')}"
    log = runs / f"{name}.log"
    if not Path(os.path.normpath(log)).is_relative_to(os.path.normpath(runs)):
        raise Refused(f"--name {name}: leads out of {runs}. Fix: a name such as ppo/gsm8k.")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        output, record = Log(log), Record(log)
    except BlockingIOError:
        fix = "Fix: wait for its end, or choose another --name."
        raise Refused(f"{log} is written by another `stepwatch run`. {fix}") from None
    except OSError as error:
        what, fix = error.filename or log, "Fix: name another folder with --runs."
        raise Refused(f"{what} cannot be written: {error.strerror}. {fix}") from None
    with suppress(OSError):  # it is no terminal, or not ours: no job control
        if os.tcgetpgrp(0) != os.getpgrp():  # started with &: the keys are the shell's
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    keys = termios.tcgetattr(0) if os.isatty(0) and os.isatty(1) else None
    attempts = _Attempts(output, record, options, keys)
    with _watched(options, command, log, name):
        status = kept(lambda orders: attempts.run(command, orders), record.killed, keys)
    if os.WIFSIGNALED(status):  # so that our parent sees the same
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.WEXITSTATUS(status)


def default_name(command: Sequence[str]) -> str:
    """Return the default name of a run: its script or module, else the program."""
    for at, word in enumerate(command):
        if at and command[at - 1] in ("-m", "--module") and word not in _LAUNCHERS:
            return word.rpartition(".")[2] or word
        if word.endswith((".py", ".sh")) and not word.startswith("-"):
            return Path(word).stem
    return Path(command[0]).name


@contextmanager
def _watched(options: Options, command: Sequence[str], log: Path, name: str) -> Iterator[None]:
    """Have a trainer's checkpoints watched meanwhile, by a process that Ctrl-C does not reach."""
    folder = options.checkpoints or layouts.folder(command, Path.cwd())
    if folder is None and options.keep:
        raise Refused(
            "--keep-best: the trainer's command line does not say where it saves checkpoints. "
            "Fix: name the folder with --checkpoints."
        )
    if folder is None:
        yield
        return
    us = os.getpid()
    ends, running = os.pipe()
    pid = os.fork()
    if pid == 0:
        end_with_parent(us)
        os.setsid()
        os.close(running)
        # Its settings and log readers take memory and a second, which nothing else here needs.
        from stepwatch.launch.checkpoints import Watcher  # noqa: PLC0415

        Watcher(log.absolute(), name, folder.absolute(), options.keep, options.config).watch(ends)
        os._exit(0)
    os.close(ends)
    try:
        yield
    finally:
        if os.getpid() == us:
            os.close(running)
            until = time.monotonic() + LAST_SECONDS
            with suppress(ChildProcessError):  # it was killed with all else
                while not os.waitpid(pid, os.WNOHANG)[0]:
                    if time.monotonic() > until:
                        os.kill(pid, signal.SIGKILL)
                    time.sleep(0.02)


class _Attempts:
    """The attempts of one call. ``keys``: the terminal's settings, if there are keys to pass on."""

    def __init__(self, log: Log, record: Record, options: Options, keys: list[Any] | None) -> None:
        self._log, self._record, self._options, self._keys = log, record, options, keys
        self._ignored = {each for each in PASSED_ON if signal.getsignal(each) is signal.SIG_IGN}  # nohup
        self._orders, self._trainer, self._job = -1, 0, ""
        self._stopping: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], orders: int) -> int:
        """Run a trainer, and retry it; returns the last wait status."""
        self._orders = orders
        policy, dry = self._options.policy, self._options.dry
        retries = Retries(policy, command, dry=dry) if policy else None
        retry: Retry | None = None
        while True:
            since = self._log.path.stat().st_size
            end = self._attempt(command, retry)
            if retries and end.status:
                from stepwatch.operate.logfiles import last_step  # noqa: PLC0415  (it takes a second)

                end = replace(end, step=last_step(self._log.path, since))
            plan = retries.after(end) if retries else ""
            if isinstance(plan, str):
                self._record.end(end)
                if plan:
                    self._log.say(plan)
                return end.status
            retry = None if dry else plan.retry
            self._record.end(end, retry, plan.changes)
            self._log.say(f"attempt {self._record.attempt} {plan.text}")
            why = self._wait(retry.at) if retry else ""
            if retry and not why and self._job and not self._stop_job(wait=True):
                why = "Ray does not confirm that the last job has ended"
            if why:
                self._log.say(f"no retry: {why}")
            if why or retry is None:
                return end.status
            command = plan.command

    def _attempt(self, command: Sequence[str], retry: Retry | None) -> End:
        """Start the trainer and handle it until its end. Raises Refused if it cannot be started."""
        if ray := self._options.ray:
            self._job, folder = f"stepwatch-{uuid.uuid4().hex[:12]}", self._options.working_dir
            submit = ["ray", "job", "submit", "--address", ray, "--submission-id", self._job]
            command = [*submit, *(["--working-dir", folder] if folder else []), "--", *command]
        self._log.tail, kills = b"", oom_kills()
        streams = Streams(self._log, self._keys)

        def prepare() -> None:
            for number in PASSED_ON:
                signal.signal(number, signal.SIG_IGN if number in self._ignored else signal.SIG_DFL)
            streams.take_terminal()

        try:
            trainer = subprocess.Popen(
                command,
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509  (no thread runs yet)
            )
        except OSError as error:
            for file in (self._log.path, self._record.path):
                if not file.stat().st_size:
                    file.unlink()
            fix = "activate the environment that has Ray" if ray else "check the command after --"
            raise Refused(f"{command[0]} cannot be started: {error.strerror}. Fix: {fix}.") from None
        self._trainer = trainer.pid
        self._record.start(command, retry)
        streams.start()
        end = self._accompany(streams)
        trainer.returncode = 0  # it is reaped
        for output in streams.outputs:  # the last words, even if another process still has it open
            self._log.append(output.held)
        if ray and end.interrupted == "Ctrl-C":
            self._stop_job(wait=True)
        elif ray and end.interrupted:  # to Ray that is a success
            end = replace(end, status=int(signal.Signals[end.interrupted]))
        kills = oom_kills() - kills
        failure = classify(self._log.tail, killed=end.signal == "SIGKILL", oom_kills=kills)
        return replace(end, oom_kills=kills, failure=failure if end.status else None)

    def _accompany(self, streams: Streams) -> End:
        """Do what signals and requests say, until the trainer has ended and its output is copied."""
        status, stopped, interrupted, until = None, None, "", 0.0
        while status is None or (time.monotonic() < until and any(map(Output.is_alive, streams.outputs))):
            interrupted = self._hear(POLL_SECONDS, streams) or interrupted
            behind = [output for output in streams.outputs if output.waiting]
            for output in behind:
                output.is_read = not (stopped or interrupted)
            if status is None or behind:
                until = time.monotonic() + DRAIN_SECONDS
            if status is None:
                status = self._reaped()
                stopped = self._obey() or stopped
        return End(status, stopped=stopped, interrupted=interrupted)

    def _hear(self, seconds: float, streams: Streams | None = None) -> str:
        """Wait for signals and keys, and pass them on to the trainer; returns what asks it to end, if any."""
        keys = [0] if self._keys else []
        ready, _, _ = select.select([self._orders, *keys], [], [], seconds)
        typed = read(0) if 0 in ready else b""
        if 0 in ready:
            self._keys = self._keys if typed else None
        if 0 in ready and streams:
            streams.type(typed)
        heard = "Ctrl-C" if b"\x03" in typed or b"\x1c" in typed else ""
        numbers = os.read(self._orders, 4096) if self._orders in ready else b""
        if self._orders in ready and not numbers:
            self._end_orphans()
        for number in numbers:
            heard = signal.Signals(number).name if number in ENDING else heard
            if streams and number == signal.SIGWINCH:
                streams.resize()
            elif streams:
                self._pass_on(number)
        return heard

    def _end_orphans(self) -> NoReturn:
        """End the trainer and all that it started, since the first process was killed."""
        if self._record.runs():
            status = end_all(GRACE_SECONDS).get(self._trainer, int(signal.SIGKILL))
            self._record.end(End(status), orphaned=True)
            if self._job:
                self._stop_job(wait=True)
        os._exit(1)

    def _reaped(self) -> int | None:
        """Reap what ended, orphans of the trainer too; returns the trainer's status if it is among them."""
        status = None
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == self._trainer else status
        return status

    def _obey(self) -> Answer | None:
        """Carry out the next request, if there is one; returns the answer."""
        answer = self._record.take_request()
        if answer and (answer.action == "stop" or self._job):
            self._pass_on(signal.SIGTERM)
        elif answer:
            reached: set[int] = set()
            while left := set(descendants(os.getpid())) - reached:  # processes that start meanwhile too
                send(signal.SIGKILL, left)
                reached |= left
        return answer

    def _pass_on(self, number: int) -> None:
        if self._job and number in ENDING:  # the program that submitted it would end alone
            self._stop_job()
        else:
            with suppress(ProcessLookupError):
                (os.killpg if number in TO_GROUP else os.kill)(self._trainer, number)

    def _stop_job(self, *, wait: bool = False) -> bool:
        """Have Ray stop the job; with ``wait`` returns whether it is known to have ended."""
        if self._stopping is None or self._stopping.poll() is not None:
            stop = ["ray", "job", "stop", "--address", str(self._options.ray), self._job]
            quiet = subprocess.DEVNULL
            self._stopping = subprocess.Popen(stop, stdin=quiet, stdout=quiet, stderr=quiet)
        with suppress(subprocess.TimeoutExpired):
            return self._stopping.wait(STOP_SECONDS if wait else 0) == 0
        return False

    def _wait(self, until: float) -> str:
        """Wait until so many seconds since the epoch; returns what ended that, empty for the time itself."""
        while True:
            left = until - time.time()
            if heard := self._hear(max(0.0, min(left, LOOK_SECONDS))):
                return heard
            if answer := self._record.take_request():
                return f"stopped by {answer.by}"
            if left <= 0:
                return ""
