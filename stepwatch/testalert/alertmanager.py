"""The alert that a test sends, what the test asks of Alertmanager, and what its log says of the test."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from stepwatch.languages import Catalogue
from stepwatch.schema.errors import Refused
from stepwatch.services.settings import alertmanager_runs
from stepwatch.system import http_client

_SAMPLE = re.compile(r"^alertmanager_(notification\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_PATIENCE = 60.0
"""Seconds that a page may take on a machine that is busy: training is what it is there for."""

_WAITS = (0.0, 0.5, 1.0, 2.0)
"""Seconds before each try: Alertmanager answers 8 GETs at a time (`--web.get-concurrency`), others 503."""

_LIFE = timedelta(minutes=3)
"""Lifetime of the test alert, in case this command is killed before it ends it."""
_PAIR = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
_FAILED = "Notify for alerts failed"
_GAVE_UP = re.compile(
    r": notify retry canceled( due to unrecoverable error)? after \d+ attempts: (.*)", re.DOTALL
)


class UnreachableError(Refused):
    """Raised when Alertmanager does not answer, or not to this."""


@dataclass(frozen=True)
class Probe:
    """A test of one receiver; its mark sets it apart from every other test, so that it is always sent.

    Its message is in the language of ``translate``.
    """

    receiver: str
    translate: Catalogue = field(default_factory=Catalogue)
    mark: str = field(default_factory=lambda: str(time.time_ns()))
    born: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def route(self) -> str:
        """The receiver of Alertmanager's settings that gets it: it alone, and by the same way."""
        return f"(test) {self.receiver}"

    @property
    def labels(self) -> dict[str, str]:
        """No run and no topic: nothing inhibits it."""
        return {"alertname": "TestAlert", "receiver": self.receiver, "severity": "info", "test": self.mark}

    def alert(self, *, over: bool = False) -> dict[str, Any]:
        """The alert as Alertmanager takes it, firing or ended."""
        end = datetime.now(timezone.utc) if over else self.born + _LIFE
        return {
            "labels": self.labels,
            "annotations": {
                "summary": self.translate(
                    "This is a test of the receiver {receiver}. Nothing is wrong.", receiver=self.receiver
                ),
                "description": self.translate(
                    "Someone ran `test-alert {receiver}` to see that messages arrive here. "
                    "A real one looks like this one. Nothing is wrong, and there is nothing to do.",
                    receiver=self.receiver,
                ),
            },
            "startsAt": self.born.isoformat(),
            "endsAt": end.isoformat(),
        }


@dataclass(frozen=True)
class Sent:
    """How many messages went out, and how many attempts that took, since Alertmanager began to count.

    ``seconds`` is how long the attempts took. Alertmanager counts by kind of receiver; only where it
    is configured so does it count by receiver, and the numbers are ``exact``.
    """

    messages: float = 0
    failed: float = 0
    attempts: float = 0
    failed_attempts: float = 0
    seconds: float = 0
    exact: bool = False

    @property
    def arrived(self) -> float:
        """How many attempts succeeded, each of them a message that arrived."""
        return self.attempts - self.failed_attempts

    def since(self, before: Sent) -> Sent:
        """What came on top."""
        numbers = [each.name for each in fields(Sent) if each.name != "exact"]
        more = {name: max(0, getattr(self, name) - getattr(before, name)) for name in numbers}
        return Sent(**more, exact=self.exact)


@dataclass(frozen=True)
class Alertmanager:
    """A running one, by its base URL."""

    url: str

    def runs(self, settings: bytes) -> bool:
        """Whether these are the settings that it runs.

        Raises:
            UnreachableError: It does not answer.
        """
        return alertmanager_runs(self._page("/metrics"), settings)

    def post(self, alert: dict[str, Any]) -> None:
        """Post an alert, as Prometheus does.

        Raises:
            UnreachableError: It does not take it.
        """
        answer = http_client.order(f"{self.url}/api/v2/alerts", [alert])
        if answer is None:
            raise self._unreachable()
        if answer:
            raise UnreachableError(f"Alertmanager refuses the test alert. It says: {answer}")

    def sent(self, integration: str, probe: Probe) -> Sent:
        """What it has sent by this kind of receiver, of all receivers if it does not tell them apart.

        Raises:
            UnreachableError: It does not answer.
        """
        samples = [
            (name, dict(_LABEL.findall(labels)), float(value))
            for name, labels, value in _SAMPLE.findall(self._page("/metrics"))
        ]
        mine = [each for each in samples if each[1].get("integration") == integration]
        exact = any("receiver_name" in labels for _, labels, _ in mine)
        if exact:
            mine = [each for each in mine if each[1].get("receiver_name") == probe.route]

        def total(metric: str) -> float:
            return sum(value for name, _, value in mine if name == metric)

        return Sent(
            messages=total("notifications_total"),
            failed=total("notifications_failed_total"),
            attempts=total("notification_requests_total"),
            failed_attempts=total("notification_requests_failed_total"),
            seconds=total("notification_latency_seconds_sum"),
            exact=exact,
        )

    def silences(self, probe: Probe) -> list[str]:
        """The ids of the silences that keep the test back."""
        query = urllib.parse.urlencode({"filter": f'test="{probe.mark}"'})
        alerts = json.loads(self._page(f"/api/v2/alerts?{query}"))
        return [silence for alert in alerts for silence in alert["status"]["silencedBy"]]

    def _page(self, path: str) -> str:
        end = time.monotonic() + _PATIENCE
        for seconds in _WAITS:
            time.sleep(seconds)
            left = max(1.0, end - time.monotonic())
            if (text := http_client.read(self.url + path, timeout=left)) is not None:
                return text
        raise self._unreachable()

    def _unreachable(self) -> UnreachableError:
        return UnreachableError(http_client.unanswered("Alertmanager", self.url))


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
