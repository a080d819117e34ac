"""What became of a test that Alertmanager handed to the notifier: the robot's answer."""

from __future__ import annotations

import json
import time
import urllib.parse
from typing import Any

from stepwatch.config.receivers import Receiver
from stepwatch.system import http_client
from stepwatch.testalert import verdict
from stepwatch.testalert.alertmanager import Probe
from stepwatch.testalert.verdict import Verdict

_BETWEEN_LOOKS = 0.2


def watch(receiver: Receiver, probe: Probe, url: str, patience: float) -> Verdict:
    """Wait until the notifier has delivered a test, or has given it up.

    Args:
        receiver: The receiver of the message.
        probe: The test.
        url: The notifier.
        patience: Seconds until it is given up here; then what is known so far is printed.
    """
    query = urllib.parse.urlencode({"test": probe.mark})
    deadline, found = time.monotonic() + patience, None
    while time.monotonic() < deadline:
        found = _found(http_client.read(f"{url}/api/v1/deliveries?{query}"))
        if found and found["state"] != "waiting":
            break
        time.sleep(_BETWEEN_LOOKS)
    if found is None:
        return verdict.lost(receiver, http_client.unanswered("The notifier", url))
    if found["state"] == "delivered":
        return verdict.taken(receiver, str(found["answer"]), float(found["ended"]) - float(found["received"]))
    return verdict.not_taken(
        receiver, str(found["reason"]), str(found["answer"]), final=found["state"] == "failed"
    )


def _found(page: str | None) -> dict[str, Any] | None:
    """Return the test's delivery, ``None`` if the notifier does not answer or has no such test."""
    try:
        return next(iter(json.loads(page or "")["deliveries"]), None)
    except (ValueError, LookupError, TypeError):
        return None
