"""Waits until the parts of a stack work, and gives up on those that will not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from stepwatch.system.terminal import Say

PATIENCE = 120
"""Seconds without progress after which a part is given up. The slowest part, on a small machine under load,
needs 20."""
_BUSY_PATIENCE = 600
"""The same for one that says what it does: Prometheus reads a segment of 128 MB at a time."""
_NEWS_SECONDS = 10
ENDS = 3
"""A part that ended so often before it worked will not work."""

_REPLAY = re.compile(
    r"WAL segment loaded\W.*?\bsegment=(?P<segment>\d+) maxSegment=(?P<last>\d+)"
    r"|Replaying (?:WAL|on-disk)"
    r"|(?P<over>Starting Prometheus|TSDB started|Server is ready|See you next time)"
)


@dataclass(frozen=True)
class Look:
    """What one look at a part that starts shows.

    ``ends``: how often it has ended so far. ``busy``: what it says it does before it works, in words that
    change as it gets on; empty for most parts. ``gone``: nothing is left that would start it again.
    """

    ready: bool
    ends: int = 0
    busy: str = ""
    gone: bool = False


@dataclass
class _Waiting:
    """A part that does not work yet: how often it had ended, and since when nothing has changed."""

    ends: int
    since: float
    busy: str = ""

    def hopeless(self, look: Look, now: float) -> str:
        """Why this part is given up, empty while it is not."""
        if look.gone:
            return "was stopped, by `make down` or a kill of the whole stack"
        if look.busy != self.busy:
            self.busy, self.since = look.busy, now
        if look.ends - self.ends >= ENDS:
            return f"ended {look.ends - self.ends} times while it started"
        if now - self.since > (_BUSY_PATIENCE if look.busy else PATIENCE):
            return f"did not answer within {now - self.since:.0f} s"
        return ""


@dataclass
class Startup:
    """One wait for some parts; ``looks`` shows the named ones, ``ended`` is how often each had ended."""

    looks: Callable[[Iterable[str]], Mapping[str, Look]]
    say: Say
    ended: Mapping[str, int]
    pause: float = 0.2

    def wait(self, names: Iterable[str]) -> dict[str, str]:
        """Wait until each part works or is given up; return why, by name, for those that are given up."""
        begun = time.monotonic()
        waiting = {name: _Waiting(self.ended.get(name, 0), begun) for name in names}
        failed: dict[str, str] = {}
        news = _NEWS_SECONDS
        while True:
            looks = self.looks(waiting)
            now = time.monotonic()
            for name, look in looks.items():
                reason = "" if look.ready else waiting[name].hopeless(look, now)
                if look.ready:
                    self.say(f"  {name} is ready ({now - begun:.1f} s)")
                if reason:
                    failed[name] = reason
                if look.ready or reason:
                    del waiting[name]
            if not waiting:
                return failed
            if now - begun > news:
                doing = (f"{name} ({part.busy})" if part.busy else name for name, part in waiting.items())
                self.say(f"  still starting after {news} s: {', '.join(doing)}")
                news += _NEWS_SECONDS
            time.sleep(self.pause)


def failure(name: str, reason: str, log: str, lines: Iterable[str], fix: str = "") -> list[str]:
    """What the user reads of a part that was given up.

    Args:
        name: The part.
        reason: Why it was given up.
        log: Where its log is.
        lines: The last ones of it.
        fix: What is wrong and what to do, where that is known.
    """
    fix = fix or f"Fix: correct what the log of {name} says, then run `make up` again."
    return [
        f"  {name} failed: it {reason}. Its log, {log}, ends with:",
        *(f"    {line}" for line in lines),
        f"  {fix} `make down` stops the rest.",
    ]


def verdict(failed: Collection[str], count: int) -> str:
    """The last line of a failed start: which of so many parts failed."""
    return f"{len(failed)} of {count} parts failed: {', '.join(sorted(failed))}"


def replay(lines: Iterable[str]) -> str:
    """What Prometheus reads before it works, by the last lines of its log; empty when it reads nothing."""
    found = [match for line in lines for match in [_REPLAY.search(line)] if match]
    if not found or found[-1]["over"]:
        return ""
    last = found[-1]
    at = f", segment {last['segment']} of {last['last']}" if last["segment"] else ""
    return f"replays its write-ahead log{at}"
