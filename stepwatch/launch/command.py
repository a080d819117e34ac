"""`stepwatch run`: the wrapper that the user sees."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.runs.files.launch import Answer, Retry
from stepwatch.launch.attempt import FROM_TERMINAL, Attempt, RayJob
from stepwatch.launch.record import POLL_SECONDS, LaunchRecord, Requests
from stepwatch.launch.retries import End, Plan, Retries, RetryPolicy
from stepwatch.launch.streams import die_of
from stepwatch.schema.errors import Refused

Beside = Callable[[Sequence[str], Path, Path], AbstractContextManager[None]]
"""Takes the command, the log and the folder of logs."""


@dataclass(frozen=True)
class Retrying:
    """The retry settings; ``last_step`` returns the last step that a log has from an offset on."""

    policy: RetryPolicy
    last_step: Callable[[Path, int], int | None]
    dry: bool = False


def run(
    command: Sequence[str],
    runs: Path,
    name: str | None,
    *,
    retrying: Retrying | None = None,
    job: RayJob | None = None,
    beside: Beside | None = None,
) -> int:
    """Run a trainer to its end as if called directly; returns its exit code, or dies of the same signal."""
    log = _log(command, runs, name)
    record = LaunchRecord(log)
    retries = Retries(retrying.policy, command) if retrying else None
    retry: Retry | None = None
    next_: Sequence[str] | None = command
    with beside(command, log, runs) if beside else nullcontext():
        while next_ is not None:
            since = log.stat().st_size
            end = Attempt(next_, log, record, retry, job).run()
            if retrying is None or retries is None:
                record.end(end)
                break
            with _deferred() as heard:
                if end.outcome.status:
                    end = replace(end, step=retrying.last_step(log, since))
                plan = retries.after(end)
                next_, retry = _follow(plan, end, log, record, heard, dry=retrying.dry)
                if next_ and job and not job.stop():
                    _say(log, "no retry: Ray does not confirm that the last job has ended")
                    break
    if end.outcome.signal:
        die_of(end.outcome.signal)
    return end.outcome.exit_code or 0


@contextmanager
def _deferred() -> Iterator[set[signal.Signals]]:
    """Defer signals that end this process to `_wait` or the end of the block; yields these signals."""
    ends = (*FROM_TERMINAL, signal.SIGTERM)
    heard = {number for number in ends if signal.getsignal(number) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    try:
        yield heard
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(
    plan: Plan | str, end: End, log: Path, record: LaunchRecord, heard: set[signal.Signals], *, dry: bool
) -> tuple[Sequence[str] | None, Retry | None]:
    """Note the end of an attempt, and wait for the next; returns its command, ``None`` if there is none."""
    if isinstance(plan, str):
        record.end(end)
        if plan:
            _say(log, plan)
        return None, None
    after = "before its first step" if end.step is None else f"after step {end.step}"
    changes = f", with {'; '.join(plan.changes)}" if plan.changes else ""
    words = (
        f"attempt {record.attempt} ended {after}, by {plan.cause}. "
        f"{'Dry run: retry' if dry else 'Retry'} {plan.number} of {plan.of} in {plan.wait:g} s{changes}."
    )
    retry = None if dry else Retry(plan.number, plan.of, plan.cause, time.time() + plan.wait)
    record.end(end, retry, plan.changes)
    _say(log, words)
    if retry is None:
        return None, None
    if why := _wait(retry.at, heard, Requests(log), record):
        _say(log, f"no retry: {why}")
        return None, None
    return plan.command, retry


def _say(log: Path, text: str) -> None:
    """Print a message between attempts, on standard error and in the log."""
    line = f"stepwatch: {text}\n"
    with suppress(OSError):
        sys.stderr.write(line)
        sys.stderr.flush()
    with suppress(OSError), log.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        broken = file.read() not in (b"", b"\n")
        file.write(b"\n" * broken + line.encode())


def _wait(until: float, heard: set[signal.Signals], requests: Requests, record: LaunchRecord) -> str:
    """Wait until a time, in seconds since the epoch; returns what ended that, empty for the time itself."""
    while (left := until - time.time()) > 0:
        if found := signal.sigtimedwait(heard, min(left, POLL_SECONDS)):
            return signal.Signals(found.si_signo).name
        if asked := requests.take(record.attempt):
            request, refused = asked
            record.answer(Answer.to(request, refused))
            if not refused:
                return f"stopped by {request.by}"
    return ""


_LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}


def default_name(command: Sequence[str]) -> str:
    """Return the default name of a run: its script or module, else the program."""
    for at, word in enumerate(command):
        if at and command[at - 1] in ("-m", "--module") and word not in _LAUNCHERS:
            return word.rpartition(".")[2] or word
        if word.endswith((".py", ".sh")) and not word.startswith("-"):
            return Path(word).stem
    return Path(command[0]).name


def _log(command: Sequence[str], runs: Path, name: str | None) -> Path:
    name = name or f"{default_name(command)}-{time.strftime('%Y%m%d-%H%M%S')}"
    log = runs / f"{name}.log"
    if not Path(os.path.normpath(log)).is_relative_to(os.path.normpath(runs)):
        raise Refused(f"--name {name}: leads out of {runs}. Fix: a name such as ppo/gsm8k.")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab"):
            pass
    except OSError as error:
        reason = error.strerror
        raise Refused(f"{log} cannot be written: {reason}. Fix: name another folder with --runs.") from None
    return log
