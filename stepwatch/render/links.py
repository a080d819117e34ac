"""Whether people who get notifications can open the links in them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment
from stepwatch.rules import messages


def remark(config: Config, deployment: Deployment) -> str | None:
    """Return the warning about links that only this machine can open; ``None`` if there is none."""
    pages = ("grafana" if messages.has_grafana(config, deployment) else "exporter", "alertmanager")
    local = [f"links.{part}" for part in pages if _is_loopback(config.link(part))]
    if not config.receivers or not local:
        return None
    names = ", ".join(receiver.name for receiver in config.receivers)
    return (
        f"Warning: {' and '.join(local)}: notifications to {names} link to {config.link(pages[0])}, which no "
        "phone and no other machine can open. Expected: addresses that their readers reach. Fix: set "
        f"{'them' if len(local) > 1 else 'it'} to the URL of your proxy or of this host, such as "
        "https://stepwatch.example.org."
    )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
