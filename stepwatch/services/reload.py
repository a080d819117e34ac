"""Has a running Alertmanager read settings that were just rendered."""

from __future__ import annotations

import hashlib
from pathlib import Path

from stepwatch.schema.errors import Refused
from stepwatch.system import http_client


class ReloadError(Refused):
    """Raised when Alertmanager refuses its new settings; it runs on with the old ones."""


def reload(alertmanager: str, settings: Path) -> str:
    """Have it read its settings again; returns how that went, in words.

    Args:
        alertmanager: Its base URL.
        settings: The file that it should run now.

    Raises:
        ReloadError: It refuses them.
    """
    answer = http_client.order(f"{alertmanager}/-/reload")
    if answer is None:
        return f"No Alertmanager answers at {alertmanager}; it reads its settings when it starts."
    if answer:
        raise ReloadError(
            f"Alertmanager refuses the new settings and runs on with the old ones. It says: {answer} "
            "Fix: correct what it names in config.yaml and generate again."
        )
    if not runs(http_client.read(f"{alertmanager}/metrics"), settings):
        return (
            f"The Alertmanager at {alertmanager} reads other files than these: `make up` applies config.yaml."
        )
    return "Alertmanager runs the new settings; Prometheus takes its own over within seconds."


def runs(page: str | None, settings: Path) -> bool:
    """Whether the settings that Alertmanager runs, by its metrics page, are this very file."""
    running = http_client.metric(page or "", "alertmanager_config_hash")
    return running == fingerprint(settings.read_bytes())


def fingerprint(settings: bytes) -> float:
    """What Alertmanager calls these settings: the first 6 bytes of their MD5, as a number."""
    digest = hashlib.md5(settings, usedforsecurity=False).digest()[:6]
    return float(int.from_bytes(digest, "little"))
