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
"""Ends of a part before its first success after which it is given up."""

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


def wait(
    names: Iterable[str],
    looks: Callable[[Iterable[str]], Mapping[str, Look]],
    say: Say,
    ended: Mapping[str, int],
    pause: float = 0.2,
) -> dict[str, str]:
    """Wait until each part works or is given up; return why, by name, for those that are given up.

    ``looks`` shows the named parts, ``ended`` is how often each had ended before.
    """
    begun, news = time.monotonic(), _NEWS_SECONDS
    waiting = dict.fromkeys(names, ("", begun))  # what it says it does, and since when
    failed: dict[str, str] = {}
    while True:
        looked = looks(waiting)
        now = time.monotonic()
        for name, look in looked.items():
            if look.busy != waiting[name][0]:
                waiting[name] = (look.busy, now)
            if look.ready:
                say(f"  {name} is ready ({now - begun:.1f} s)")
            elif reason := _give_up_reason(look, look.ends - ended.get(name, 0), now - waiting[name][1]):
                failed[name] = reason
            else:
                continue
            del waiting[name]
        if not waiting:
            return failed
        if now - begun > news:
            doing = (f"{name} ({busy})" if busy else name for name, (busy, _) in waiting.items())
            say(f"  still starting after {news} s: {', '.join(doing)}")
            news += _NEWS_SECONDS
        time.sleep(pause)


def _give_up_reason(look: Look, ends: int, unchanged: float) -> str:
    """Why to give up a part after this number of ends and seconds without a change; empty to continue."""
    if look.gone:
        return "was stopped, by `make down` or a kill of the whole stack"
    if ends >= ENDS:
        return f"ended {ends} times while it started"
    patience = _BUSY_PATIENCE if look.busy else PATIENCE
    return f"did not answer within {unchanged:.0f} s" if unchanged > patience else ""


def failure(name: str, reason: str, log: str, lines: Iterable[str], fix: str = "") -> list[str]:
    """What the user reads of a part that was given up for a reason.

    ``log`` is where its log is, ``lines`` are its last ones; ``fix`` says what is wrong and what to do, where
    that is known.
    """
    fix = fix or f"Fix: correct what the log of {name} says, then run `make up` again."
    return [
        f"  {name} failed: it {reason}. Its log, {log}, ends with:",
        *(f"    {line}" for line in lines),
        f"  {fix} `make down` stops the rest.",
    ]


def verdict(failed: Collection[str], count: int) -> str:
    """The last line of a failed start: which of the parts failed."""
    return f"{len(failed)} of {count} parts failed: {', '.join(sorted(failed))}"


def replay(lines: Iterable[str]) -> str:
    """What Prometheus reads before it works, by the last lines of its log; empty when it reads nothing."""
    found = [match for match in map(_REPLAY.search, lines) if match]
    if not found or found[-1]["over"]:
        return ""
    segment, last = found[-1]["segment"], found[-1]["last"]
    return f"replays its write-ahead log{f', segment {segment} of {last}' if segment else ''}"
