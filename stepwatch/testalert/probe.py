"""The alert that a test sends."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

_LIFE = timedelta(minutes=3)
"""It ends by itself after that, should no one be there any more to end it."""


def _unique() -> str:
    return str(time.time_ns())


@dataclass(frozen=True)
class Probe:
    """A test of one receiver; its mark sets it apart from every other test, so that it is always sent."""

    receiver: str
    mark: str = field(default_factory=_unique)
    born: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def route(self) -> str:
        """The receiver of Alertmanager's settings that gets it: it alone, and by the same way."""
        return f"(test) {self.receiver}"

    @property
    def labels(self) -> dict[str, str]:
        """No run and no topic: nothing inhibits it."""
        return {"alertname": "TestAlert", "receiver": self.receiver, "severity": "info", "test": self.mark}

    def firing(self) -> dict[str, Any]:
        """The alert as Alertmanager takes it."""
        return self._alert(self.born + _LIFE)

    def over(self) -> dict[str, Any]:
        """The same alert, ended."""
        return self._alert(datetime.now(timezone.utc))

    def _alert(self, end: datetime) -> dict[str, Any]:
        return {
            "labels": self.labels,
            "annotations": {
                "summary": f"This is a test of the receiver {self.receiver}. Nothing is wrong.",
                "description": f"Someone ran `test-alert {self.receiver}` to see that messages arrive here. "
                "A real one looks like this one. Nothing is wrong, and there is nothing to do.",
            },
            "startsAt": self.born.isoformat(),
            "endsAt": end.isoformat(),
        }
