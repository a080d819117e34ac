"""What starting, stopping and resetting a stack share: waits for parts, the runs' folder, the demo's end."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
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
_DEMO_PATIENCE = 60

ANSWERS = "vector(1)"
"""A query with a result as soon as Prometheus answers."""
DEMO_GONE = f'absent(rl_step{{run=~"{RUNS}.+"}})'
"""With a result once it has no run of the demo any more."""
UNSCRAPED = 'absent(up{job=~"runs|gpu"} == 1)'
"""Once it has ended the series of the exporters of runs and GPUs, which were stopped. Started again within
five minutes, it would go on with their last samples, and with the demo's alerts."""

_REPLAY = re.compile(
    r"WAL segment loaded\W.*?\bsegment=(?P<segment>\d+) maxSegment=(?P<last>\d+)"
    r"|Replaying (?:WAL|on-disk)"
    r"|(?P<over>Starting Prometheus|TSDB started|Server is ready|See you next time)"
)


@dataclass(frozen=True)
class Look:
    """What one look at a starting part shows: how often it ended, what keeps it busy, whether it is gone."""

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
    """Wait until each part works or is given up; return why, by name, for those that are given up."""
    begun, news = time.monotonic(), _NEWS_SECONDS
    waiting = dict.fromkeys(names, ("", begun))  # what it says it does, and since when
    failed: dict[str, str] = {}
    while True:
        looked = looks(waiting)
        now = time.monotonic()
        for name, look in looked.items():
            if look.busy != waiting[name][0]:
                waiting[name] = (look.busy, now)
            unchanged = now - waiting[name][1]
            if look.ready:
                say(f"  {name} is ready ({now - begun:.1f} s)")
            elif look.gone:
                failed[name] = "was stopped, by `make down` or a kill of the whole stack"
            elif (ends := look.ends - ended.get(name, 0)) >= ENDS:
                failed[name] = f"ended {ends} times while it started"
            elif unchanged > (_BUSY_PATIENCE if look.busy else PATIENCE):
                failed[name] = f"did not answer within {unchanged:.0f} s"
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


def explain(name: str, reason: str, log: str, lines: Iterable[str], say: Say) -> None:
    """Say why a part was given up; ``log`` is where its log is, ``lines`` its last ones."""
    say(f"  {name} failed: it {reason}. Its log, {log}, ends with:")
    for line in lines:
        say(f"    {line}")
    say(f"  Fix: correct what the log of {name} says, then run `make up` again. `make down` stops the rest.")


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


def end_demo_alerts(alertmanager: str, gpus: str) -> int:
    """Resolve the demo's alerts, those about the ``instance`` ``gpus`` too; return how many there were."""
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
    started = f'min(rl_run_start_timestamp_seconds{{run=~"{RUNS}.+"}}) > {after:.3f}'
    return wait(prometheus, started)


def wait(prometheus: str, promql: str, seconds: float = _DEMO_PATIENCE) -> bool:
    """Wait until a query to Prometheus has a result, no longer than these seconds; return whether it has."""
    deadline = time.monotonic() + seconds
    url = f"{prometheus}/api/v1/query?query={urllib.parse.quote(promql)}"
    while time.monotonic() < deadline:
        if (answer := http_client.read(url)) and json.loads(answer)["data"]["result"]:
            return True
        time.sleep(0.5)
    return False


def make_folder(runs: Path) -> bool:
    """Make the folder if it is missing and no glob; return whether it was missing."""
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
    change = "to change it, use RUNS=folder again, or runs.path in config.yaml"
    return f", set by the last `make up RUNS=folder` ({change})" if remembered else ""
