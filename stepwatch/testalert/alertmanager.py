"""What a test asks of a running Alertmanager."""

from __future__ import annotations

import json
import re
import urllib.parse
from dataclasses import dataclass
from typing import Any

from stepwatch.schema.errors import Refused
from stepwatch.services import reload
from stepwatch.system import http_client
from stepwatch.testalert.probe import Probe

_SAMPLE = re.compile(r"^alertmanager_(notification\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class UnreachableError(Refused):
    """Raised when Alertmanager does not answer, or not to this."""


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
        return Sent(
            max(0, self.messages - before.messages),
            max(0, self.failed - before.failed),
            max(0, self.attempts - before.attempts),
            max(0, self.failed_attempts - before.failed_attempts),
            max(0, self.seconds - before.seconds),
            self.exact,
        )


@dataclass(frozen=True)
class Alertmanager:
    """A running one, by its base URL."""

    url: str

    def runs(self, settings: bytes) -> bool:
        """Whether these are the settings that it runs.

        Raises:
            UnreachableError: It does not answer.
        """
        text = self._page("/metrics")
        return http_client.metric(text, "alertmanager_config_hash") == reload.fingerprint(settings)

    def tell(self, alert: dict[str, Any]) -> None:
        """Hand it an alert, as Prometheus does.

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
        text = http_client.read(self.url + path)
        if text is None:
            raise self._unreachable()
        return text

    def _unreachable(self) -> UnreachableError:
        return UnreachableError(http_client.unanswered("Alertmanager", self.url))
