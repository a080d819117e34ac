"""Parts that died on a full disk are started as soon as there is room again.

supervisord waits a second longer before each try to start a part, and gives up after the hundredth. A full
disk ends some versions of Prometheus (2.42 by SIGBUS), and none starts on it.
"""

from __future__ import annotations

import re

from exporter.watchdog.client import Client, UnreachableError

WAITING = ("BACKOFF", "FATAL", "EXITED")
"""States of a part that should run and does not."""


class Supervisor:
    """The supervisord of a native stack, by the path of its socket; ``None`` where there is none."""

    def __init__(self, path: str | None) -> None:
        self._client = Client(path) if path else None

    def start(self, part: str) -> bool:
        """Start a part at once that waits for its next try or was given up. Returns whether it did."""
        if self._client is None:
            return False
        try:
            if not any(f">{state}<" in _call(self._client, "getProcessInfo", part) for state in WAITING):
                return False
            # Without this, one that waits for its next try counts as started.
            _call(self._client, "stopProcess", part)
            return "<fault>" not in _call(self._client, "startProcess", part, "<boolean>0</boolean>")
        except UnreachableError:
            return False


def _call(client: Client, method: str, part: str, *more: str) -> str:
    """Call a method by XML-RPC; ``part`` is the name of a part, which needs no escape."""
    values = "".join(
        f"<param><value>{value}</value></param>" for value in (f"<string>{part}</string>", *more)
    )
    call = f"<methodCall><methodName>supervisor.{method}</methodName><params>{values}</params></methodCall>"
    return re.sub(r"\s+", "", client.post("/RPC2", "text/xml", call).body)
