"""The product as its users meet it: commands, files and pages, and nothing of what is inside."""

from __future__ import annotations

import atexit
import functools
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.real.server import free_port
from tests.real.tools import prometheus
from tests.real.waiting import Work, eventually
from tests.runs.scrape import Scrape

CHECKOUT = Path(__file__).parents[2]
NEWEST, OLDEST = "3.13", "2.42"
QUIET_SCRAPES = 6
"""Equal pages in a row after which an exporter has read everything: a run of several files may come late."""
MOST_POLLS = 200


def command(*words: str | Path, cwd: Path = CHECKOUT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the checkout's Python with these words."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**_environment(), "PYTHONPATH": str(CHECKOUT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def stepwatch(*words: str | Path) -> str:
    """Run a command that reads logs, with the newest Prometheus; returns its output."""
    done = command("-m", "stepwatch", *words, **programs())
    assert done.returncode == 0, done.stderr
    return done.stdout


def programs() -> dict[str, str]:
    """The variables that name the newest Prometheus."""
    tool = prometheus(NEWEST)
    return {"STEPWATCH_PROMETHEUS": str(tool.server), "STEPWATCH_PROMTOOL": str(tool.tool)}


@functools.cache
def rendered(config: str = "") -> Path:
    """A folder with what generate.py makes of this configuration."""
    folder = Path(tempfile.mkdtemp(prefix="stepwatch-parity-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "config.yaml").write_text(config)
    done = command("generate.py", "--config", folder / "config.yaml", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def exporting(module: str, *words: str | Path, **variables: str) -> Iterator[str]:
    """An exporter that answers; gives its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = [sys.executable, "-m", module, f"--port={port}", *map(str, words)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            arguments, cwd=CHECKOUT, env={**_environment(), **variables}, stdout=log, stderr=log
        )

        def answers() -> bool:
            if process.poll() is not None:
                log.seek(0)
                raise AssertionError(f"{' '.join(arguments)}: {log.read()}")
            try:
                return bool(read(f"{url}/metrics"))
            except OSError:
                return False

        try:
            eventually(answers, pause=0.1)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def read(url: str) -> str:
    """The text at a URL."""
    with urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def settled(url: str) -> Scrape:
    """The page of a run exporter once it has read all there is, and its pages stay equal."""
    pages: list[list[str]] = []
    polls: set[float | None] = set()
    found = Scrape(b"")

    def quiet() -> bool:
        nonlocal found
        found = Scrape(read(f"{url}/metrics").encode())
        poll = found.value("stepwatch_last_poll_timestamp_seconds")
        new = poll not in polls
        polls.add(poll)
        if new and found.value("stepwatch_unread_bytes") == 0:
            pages.append([line for line in found.text.splitlines() if line.startswith("rl_")])
        last = pages[-QUIET_SCRAPES:]
        return len(last) == QUIET_SCRAPES and bool(last[0]) and all(page == last[0] for page in last)

    scrapes = Work("polls of the logs", lambda: len(polls))
    eventually(quiet, scrapes, MOST_POLLS, pause=0.2, seen=lambda: found.text)
    return found


def rounded(value: float) -> str:
    """Nine digits: what a user can see of it, and what every machine computes alike."""
    return f"{value:.9g}" if math.isfinite(value) else str(value)


def series(name: str, labels: Mapping[str, str]) -> str:
    """As Prometheus writes it, with its labels in order."""
    inside = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{inside}}}" if inside else name


def scrubbed(text: str, *folders: Path) -> str:
    """A text without what differs from one run of the tests to the next."""
    for folder in (*folders, CHECKOUT):
        text = text.replace(str(folder), "DIR")
    return re.sub(r"\b(127\.0\.0\.1|localhost):\d+", "HOST:PORT", text)


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if "STEPWATCH" not in key}
