"""What Alertmanager's log says about the attempts to send one message."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from stepwatch.testalert.alertmanager import Probe

_PAIR = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
_FAILED = "Notify for alerts failed"
_GAVE_UP = re.compile(
    r": notify retry canceled( due to unrecoverable error)? after \d+ attempts: (.*)", re.DOTALL
)


@dataclass(frozen=True)
class LogResult:
    """The fate of a message by the log, which has no entry for a first attempt that succeeds.

    ``error`` is what the last failed attempt got. ``gave_up``: there will be no more attempts;
    ``final``: since the error is one that does not pass. ``failures``: the log reports messages that
    failed, this one or others.
    """

    error: str = ""
    delivered: bool = False
    gave_up: bool = False
    final: bool = False
    failures: bool = False


def log_result(text: str, probe: Probe) -> LogResult:
    """Read the fate of a test from a log."""
    log_result = LogResult()
    failures = False
    for line in text.split("\n"):
        if "Notify " not in line:
            continue
        entry = {name: unquoted(value) for name, value in _PAIR.findall(line)}
        message, error = entry.get("msg", ""), entry.get("err", "")
        failures = failures or message == _FAILED
        # New Alertmanagers name the group, and so the test, that an entry is about.
        if probe.mark not in entry.get("aggrGroup", probe.mark):
            continue
        if message == _FAILED and error.startswith(f"{probe.route}/"):
            end = _GAVE_UP.search(error)
            log_result = LogResult(end[2] if end else error, gave_up=True, final=bool(end and end[1]))
        elif entry.get("receiver") == probe.route:
            if message == "Notify success":
                log_result = LogResult(log_result.error, delivered=True)
            # After giving up, it restarts as long as the alert lasts.
            elif message.startswith("Notify attempt failed") and not log_result.gave_up:
                log_result = LogResult(error)
    return replace(log_result, failures=failures)


def unquoted(value: str) -> str:
    """A value of a log line as it was before it was quoted."""
    try:
        return str(json.loads(value)) if value.startswith('"') else value
    except ValueError:  # Go escapes a few characters that JSON does not know
        return value[1:-1]
