"""``python -m stepwatch deadman --peer URL``: watch another machine's stack, in the foreground.

The watchdog does the same for `peers` of config.yaml.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from exporter.watchdog.client import Client
from exporter.watchdog.finding import EXPIRY_SECONDS, Findings
from exporter.watchdog.servers import Alertmanager, Peer, configured_peers
from stepwatch.alerts.stack import PeerDown
from stepwatch.config import Config, load, reference
from stepwatch.config.deployment import OnThisMachine
from stepwatch.config.loading import validated, written
from stepwatch.render.exporters import posted, watched_peers
from stepwatch.schema.errors import ConfigError, Problem, Refused
from stepwatch.schema.scalars import Duration
from stepwatch.system.terminal import Say

_MOST_EVERY = Duration.parse("1m")


def deadman(
    file: Path,
    addresses: Sequence[str],
    say: Say,
    *,
    every: str,
    patience: str | None = None,
    login: Mapping[str, str | None],
    password_file: str | None = None,
) -> int:
    """Ask the Alertmanagers of peers for their Watchdog, and post PeerDown to this machine's; never returns.

    Args:
        file: The configuration file; its receivers are notified.
        addresses: Of the peers' Alertmanagers; none for `peers` of the file.
        say: Gets a line for each change.
        every: The time between two looks.
        patience: For how long a peer is silent before PeerDown fires; None for ``alerts.PeerDown.for``.
        login: ``username``, ``password_file`` and ``ca_file`` of each address.
        password_file: Of this machine's Alertmanager.

    Raises:
        Refused: The configuration is wrong, an argument is, or there is no peer.
    """
    config = _with(file, addresses, login)
    if not config.peers:
        raise Refused(
            f"{file.name} has no peers, and no --peer is given. Expected: the address of the other machine's "
            "Alertmanager. Fix: --peer http://<machine>:9093"
        )
    pause = _span("--every", every)
    if pause > _MOST_EVERY:
        raise Refused(
            f"--every {every} is too long. Expected: at most {_MOST_EVERY}. Fix: choose a shorter interval."
        )
    hold = _span("--for", patience) if patience else config.alerts.of(PeerDown).for_
    place = OnThisMachine(config)
    url = f"http://{config.address('alertmanager')}"
    found = configured_peers(watched_peers(config, place), hold.seconds)
    names = ", ".join(each.name for each in config.receivers) or "no one: config.yaml has no receivers"
    say(
        f"Watching {', '.join(peer.name for peer in found)} every {pause}. After {hold} without an answer, "
        f"PeerDown is sent to {url}, which notifies {names}."
    )
    alert = posted(config, place, config.alerts.of(PeerDown))
    findings = Findings.by_settings(alert, EXPIRY_SECONDS + hold.seconds)
    for peer in found:
        peer.start(pause.seconds)
    _watch(found, findings, Alertmanager(Client(url, password_file)), pause.seconds, say)
    return 0


def _watch(
    found: Sequence[Peer], findings: Findings, alertmanager: Alertmanager, pause: float, say: Say
) -> None:
    reported: dict[str, str] = {}

    def report(name: str, text: str) -> None:
        if reported.get(name) != text:
            say(f"{datetime.now().astimezone():%H:%M:%S} {name}: {text}")
        reported[name] = text

    while True:
        # The first answers come at once.
        time.sleep(min(pause, 1.0) if not reported else pause)
        now = time.time()
        findings.update([each for peer in found for each in peer.findings()], now)
        alerts = findings.alerts(now)
        if not alerts or alertmanager.post(alerts):
            findings.forget(now)
            report("Alertmanager here", f"accepts {len(alerts)} alerts" if alerts else "no alerts to send")
        else:
            refusal = next((each.description for each in alertmanager.look()), "it does not answer")
            report("Alertmanager here", f"PeerDown was not delivered: {refusal}")
        for peer in found:
            report(peer.name, f"DOWN: {peer.problem}" if peer.down else peer.problem or "well")


def _with(file: Path, addresses: Sequence[str], login: Mapping[str, str | None]) -> Config:
    """Return the configuration of a file with these peers in place of its own."""
    config = load(file)
    if not addresses:
        return config
    more = {key: value for key, value in login.items() if value}
    entries = [{"url": address, **more} for address in addresses]
    try:
        return validated({**written(file).values, "peers": entries}, file)
    except ValidationError as error:
        problems = [Problem(None, fault) for fault in reference.faults(error, Config)]
        raise ConfigError("--peer", problems) from error


def _span(option: str, text: str) -> Duration:
    try:
        span = Duration.parse(text)
    except ValueError as error:
        raise Refused(
            f"{option} {text} {error}. Expected: a time such as 10s or 2m. Fix: write it so."
        ) from error
    if not span.milliseconds:
        raise Refused(f"{option} {text} is zero. Expected: a time such as 10s or 2m. Fix: write it so.")
    return span
