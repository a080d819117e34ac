"""What starting, stopping and resetting a stack share, whatever it runs in.

Waiting for parts, and when to give one up; damaged files that keep Prometheus or Alertmanager from starting;
the folder of runs; the alerts of the demo.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path

from demo import RUNS
from exporter import credentials
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
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


def wait_for_parts(
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


def failure_lines(name: str, reason: str, log: str, lines: Iterable[str], fix: str = "") -> list[str]:
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


def failure_summary(failed: Collection[str], count: int) -> str:
    """The last line of a failed start: which of the parts failed."""
    return f"{len(failed)} of {count} parts failed: {', '.join(sorted(failed))}"


def replay_progress(lines: Iterable[str]) -> str:
    """What Prometheus reads before it works, by the last lines of its log; empty when it reads nothing."""
    found = [match for match in map(_REPLAY.search, lines) if match]
    if not found or found[-1]["over"]:
        return ""
    segment, last = found[-1]["segment"], found[-1]["last"]
    return f"replays its write-ahead log{f', segment {segment} of {last}' if segment else ''}"


# Prometheus and Alertmanager exit with an error over such a file, at every start. Other damage they repair
# themselves, or continue without the file.
DAMAGED = "damaged"
"""The folder, in a part's data folder, that gets what is moved aside."""

LOG_LINES = 50
"""Of the log's end, in which the last starts are found."""

NO_DAMAGE = "`make up REPAIR=1`: no damaged file keeps a part from starting; nothing was moved."

_WORKS = re.compile("TSDB started|Server is ready|Completed loading of configuration file")
_BLOCK = re.compile(r"\bcorrupted block (?P<name>[0-9A-HJKMNP-TV-Z]{26})\b")
_HEAD = re.compile(r"\bchunks_head\b|head chunk file")
_WAL = re.compile(r"\bWAL\b|/wal\b|get segment range|segments are not sequential")
_OTHER_TROUBLE = re.compile(
    "no space left|quota exceeded|permission denied|read-only|too many open files|cannot allocate"
    "|input/output error|temporarily unavailable"
)
"""The file is well then, or the disk is not: moving a file aside would help neither."""
_FATAL = {
    "prometheus": re.compile(r'"opening storage failed: (?P<reason>.*)"'),
    "alertmanager": re.compile(
        r'(?:msg="(?P<what>[^"]*)" )?'
        r'err="(?P<reason>unexpected EOF|proto: .*|invalid state|read .* is a directory)"'
    ),
}

_LOSS = {
    "chunks_head": "nothing: Prometheus rebuilds it from its write-ahead log",
    "wal": "the samples since the last block, of three hours at most",
    "nflog": "which notifications were sent: alerts that fire are sent once more",
    "silences": "all silences",
}


@dataclass(frozen=True)
class Damage:
    """A damaged file or folder: ``name``, below the data folder of a part, and the part's own words."""

    part: str
    name: str
    reason: str

    def fix(self, place: str) -> str:
        """The message about it; ``place`` is the data folder, as the user names it."""
        loss = _LOSS.get(self.name, "the samples of this block")
        return (
            f"{place}/{self.name} is damaged ({self.reason}), and {self.part} cannot start with it. Removing "
            f"it loses {loss}. Fix: run `make up REPAIR=1`, which moves it to {place}/{DAMAGED} and "
            f"starts {self.part}; it deletes nothing."
        )


def find_damage(part: str, log: Sequence[str], folder: Path | None = None) -> Damage | None:
    """Return the damaged file that keeps a part from starting; ``None`` where none is known.

    ``log`` are the last lines of its log, some `LOG_LINES`; ``folder`` is its data folder, where that can be
    looked into: a file that is no longer there is not damaged.
    """
    if part not in _FATAL:
        return None
    # One that dies again and again may be in the middle of a start.
    since_it_worked = takewhile(lambda line: not _WORKS.search(line), reversed(log))
    fatal = next(filter(None, map(_FATAL[part].search, since_it_worked)), None)
    if not fatal:
        return None
    name = _of_prometheus(fatal["reason"]) if part == "prometheus" else _of_alertmanager(fatal, folder)
    missing = not name or (folder is not None and not (folder / name).exists())
    return None if missing else Damage(part, name, fatal["reason"])


def damage_stamp() -> str:
    """Return a folder name for what is moved aside now."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def move_aside(damage: Damage, folder: Path) -> Path:
    """Move a damaged file aside, in the data folder of a stopped part; return its new path.

    Raises:
        OSError: It cannot be moved.
    """
    aside = folder / DAMAGED / damage_stamp()
    aside.mkdir(parents=True, exist_ok=True)
    return (folder / damage.name).rename(aside / damage.name)


def _of_prometheus(reason: str) -> str:
    if _OTHER_TROUBLE.search(reason):
        return ""
    if block := _BLOCK.search(reason):
        return block["name"]
    if _HEAD.search(reason):
        return "chunks_head"
    return "wal" if _WAL.search(reason) else ""


def _of_alertmanager(fatal: re.Match[str], folder: Path | None) -> str:
    words = (fatal["what"] or "").lower()
    if "notification log" in words:
        return "nflog"
    if "silence" in words:
        return "silences"
    # Before 0.26 it does not say which file; it reads nflog first.
    names = [name for name in ("nflog", "silences") if folder is None or (folder / name).exists()]
    broken = (name for name in names if folder is None or not _whole(folder / name))
    return next(broken, names[0] if names else "nflog")


def _whole(file: Path) -> bool:
    """Whether a file is a row of messages, each behind its length (a varint), as Alertmanager writes them."""
    if not file.is_file():
        return False
    data = file.read_bytes()
    at = 0
    while at < len(data):
        number = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]").match(data, at)
        if not number:
            return False
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(number[0]))
        at = number.end() + length
        if not length or at > len(data):
            return False
    return True


_DEMO_PATIENCE = 60


def end_demo_alerts(alertmanager: str, gpus: str) -> int:
    """Resolve the alerts of the demo in Alertmanager; returns how many there were.

    Prometheus would do so only minutes later, if at all: it forgets them when it restarts.

    ``alertmanager`` is its base URL, ``gpus`` the ``instance`` of the simulated GPUs.
    """
    alerts = json.loads(http_client.read(f"{alertmanager}/api/v2/alerts") or "[]")
    now = datetime.now(timezone.utc).isoformat()
    ended = [
        {**{key: alert[key] for key in ("labels", "annotations", "startsAt")}, "endsAt": now}
        for alert in alerts
        if alert["labels"].get("run", "").startswith(RUNS) or alert["labels"].get("instance") == gpus
    ]
    refusal = http_client.order(f"{alertmanager}/api/v2/alerts", ended) if ended else ""
    return 0 if refusal != "" else len(ended)


def wait_demo_started(prometheus: str, after: float) -> bool:
    """Wait until Prometheus has seen that every run of the demo restarted after this Unix time."""
    return _wait(
        prometheus, f'min(rl_run_start_timestamp_seconds{{run=~"{RUNS}.+"}}) > {after:.3f}', _DEMO_PATIENCE
    )


def wait_demo_gone(prometheus: str) -> bool:
    """Wait until Prometheus has no run of the demo any more."""
    return _wait(prometheus, f'absent(rl_step{{run=~"{RUNS}.+"}})', _DEMO_PATIENCE)


def wait_unscraped(prometheus: str, seconds: float) -> bool:
    """Wait until Prometheus has ended the series of the exporters of runs and GPUs, which were stopped.

    Stopped before, it would go on with their last samples, and with the demo's alerts, when it is started
    again within five minutes.
    """
    return _wait(prometheus, 'absent(up{job=~"runs|gpu"} == 1)', seconds)


def wait_prometheus_ready(prometheus: str) -> bool:
    """Wait until Prometheus, started again, answers queries."""
    return _wait(prometheus, "vector(1)", _DEMO_PATIENCE)


def _wait(prometheus: str, promql: str, seconds: float) -> bool:
    """Wait until a query has a result, no longer than these seconds."""
    deadline = time.monotonic() + seconds
    url = f"{prometheus}/api/v1/query?query={urllib.parse.quote(promql)}"
    while time.monotonic() < deadline:
        if (answer := http_client.read(url)) and json.loads(answer)["data"]["result"]:
            return True
        time.sleep(0.5)
    return False


def make_folder(runs: Path) -> bool:
    """Make the folder if it is missing and no glob; returns whether it was missing.

    Raises:
        Refused: it cannot be made.
    """
    if any(sign in str(runs) for sign in "*?[") or runs.is_dir():
        return False
    try:
        runs.mkdir(parents=True)
    except OSError as problem:
        raise Refused(
            f"runs.path: {runs}: {problem.strerror}. Expected: a folder. "
            "Fix: name the folder that your runs write to, `make up RUNS=folder`."
        ) from None
    return True


def logins(password: str) -> str:
    """Return the words for people who sign in; ``password`` says where it is."""
    return (
        f"Sign in to Prometheus and Alertmanager as {credentials.PEOPLE}, to Grafana as admin; password: "
        f"{password}\nGrafana reads it at its first start only; change it there in Grafana itself."
    )


def folder_remark(*, made: bool, remembered: bool) -> str:
    """What is worth knowing about the folder, as the rest of a sentence that ends with its path."""
    if made:
        return ", which did not exist and was created empty. To read another folder: `make up RUNS=folder`"
    if remembered:
        return (
            ", set by the last `make up RUNS=folder` (to change it, use RUNS=folder again, or runs.path "
            "in config.yaml)"
        )
    return ""
