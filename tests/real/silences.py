"""Silences of a real Alertmanager."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

from stepwatch.system import http_client


def silence(url: str, name: str, value: str, comment: str = "") -> str:
    """Silence for two hours what has a label that this pattern fits; returns the silence's id."""
    now = datetime.now(timezone.utc)
    wanted = {
        "matchers": [{"name": name, "value": value, "isRegex": True}],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=2)).isoformat(),
        "createdBy": "a test",
        "comment": comment,
    }
    answer = http_client.post(f"{url}/api/v2/silences", wanted)
    assert answer, "no answer"
    assert answer.done, answer
    made: str = json.loads(answer.text)["silenceID"]
    return made


def comments(url: str) -> list[str]:
    """The comment of each silence that holds."""
    found: list[dict[str, Any]] = json.loads(http_client.read(f"{url}/api/v2/silences") or "[]")
    return [each["comment"] for each in found if each["status"]["state"] == "active"]
