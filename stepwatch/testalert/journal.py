"""What Alertmanager's log says about the attempts to send one message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stepwatch.testalert.probe import Probe

Journal = Callable[[], str]
"""Gives what was logged since the journal was opened, an empty text if the log is out of reach."""

_PAIR = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
_FAILED = "Notify for alerts failed"
_GAVE_UP = re.compile(
    r": notify retry canceled( due to unrecoverable error)? after \d+ attempts: (.*)", re.DOTALL
)


def opened(path: Path) -> Journal:
    """The journal of a log file, which may be replaced by a new one while it is read."""
    begin = path.stat().st_size if path.exists() else 0

    def news() -> str:
        if not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(begin if path.stat().st_size >= begin else 0)
            return log.read().decode("utf-8", "replace")

    return news


@dataclass(frozen=True)
class Story:
    """What became of a message, as far as the log tells; it is silent about a first attempt that succeeds.

    ``error`` is what the last failed attempt got. ``gave_up``: there will be no more attempts;
    ``final``: since the error is one that does not pass. ``failures``: the log reports messages that
    failed, this one or others.
    """

    error: str = ""
    delivered: bool = False
    gave_up: bool = False
    final: bool = False
    failures: bool = False


def story(text: str, probe: Probe) -> Story:
    """Read from a log what became of a test."""
    story, entries = Story(), list(_entries(text))
    for entry in entries:
        # New Alertmanagers name the group, and so the test, that an entry is about.
        if probe.mark in entry.get("aggrGroup", probe.mark):
            story = _continued(story, entry, probe.route)
    return replace(story, failures=any(entry.get("msg") == _FAILED for entry in entries))


def _continued(story: Story, entry: dict[str, str], route: str) -> Story:
    said, error = entry.get("msg", ""), entry.get("err", "")
    if said == _FAILED and error.startswith(f"{route}/"):
        end = _GAVE_UP.search(error)
        return Story(end[2] if end else error, gave_up=True, final=bool(end and end[1]))
    if entry.get("receiver") != route:
        return story
    if said == "Notify success":
        return Story(story.error, delivered=True)
    # Having given up, it begins anew as long as the alert lasts.
    return Story(error) if said.startswith("Notify attempt failed") and not story.gave_up else story


def _entries(text: str) -> Iterator[dict[str, str]]:
    for line in text.split("\n"):
        if "Notify " in line:
            yield {name: unquoted(value) for name, value in _PAIR.findall(line)}


def unquoted(value: str) -> str:
    """A value of a log line as it was before it was quoted."""
    try:
        return str(json.loads(value)) if value.startswith('"') else value
    except ValueError:  # Go escapes a few characters that JSON does not know
        return value[1:-1]
