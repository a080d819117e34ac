"""``python -m exporter.notifier``: delivers notifications to chats, from a queue on disk."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exporter import logging_setup
from exporter.http.routes import HostCheck, Routes
from exporter.http.server import Server
from exporter.notifier.channel import Secrets
from exporter.notifier.delivery import SECONDS_TO_STOP, Delivery
from exporter.notifier.outbox import Outbox, OutboxError
from exporter.notifier.pages import Site
from exporter.notifier.robots import ROBOTS
from exporter.notifier.stack_client import StackClient
from exporter.notifier.wording import Addresses, Wording
from exporter.options import (
    CommandLine,
    log_cannot_listen,
    positive,
    start_again,
    stopped_by_signal,
    string,
    texts,
)

logger = logging.getLogger("exporter.notifier")
MOST_BODY = 16 << 20  # bytes of a request: Alertmanager sends all alerts of a group with all their texts
SERVE_SECONDS = 0.5
_PRUNE_SECONDS = 3600.0


class Channel(NamedTuple):
    """A receiver, as the settings name it."""

    name: str
    kind: str
    secrets: Secrets
    keyword: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Deliver until SIGTERM or SIGINT. Returns the exit code."""
    settings = command_line(arguments)
    options = settings.options()
    logging_setup.configure(options.log_level, options.log_format)
    stop = stopped_by_signal()
    try:
        outbox = Outbox(options.state_dir, options.repeat)
    except OutboxError as problem:
        logger.error("%s", problem)  # noqa: TRY400 - a user's mistake
        return 2
    addresses = Addresses(
        options.exporter_link, options.alertmanager_link, options.link, options.grafana_link
    )
    wording = Wording(addresses, options.texts, options.waits)
    stack = StackClient(options.prometheus, options.alertmanager, options.password_file)
    deliveries = {
        channel.name: Delivery(
            channel.name,
            channel.kind,
            ROBOTS[channel.kind](channel.secrets, wording, channel.keyword),
            channel.secrets,
            outbox=outbox,
            wording=wording,
            ask=stack.known,
        )
        for channel in options.channels
    }
    site = Site(
        outbox,
        deliveries,
        wording=wording,
        stack=stack,
        password_file=options.password_file,
        alertmanager=options.alertmanager_link,
    )
    pages = HostCheck(Routes(site.routes()), {*options.hosts, options.listen})
    try:
        server = Server((options.listen, options.port), pages, MOST_BODY)
    except OSError as error:
        log_cannot_listen(options, error)
        return 2
    names = ", ".join(f"{each.name} ({each.kind})" for each in deliveries.values())
    logger.info("http://%s:%s/ shows messages to %s", options.listen, options.port, names or "no one")
    for delivery in deliveries.values():
        delivery.start()
    pruned = 0.0
    while not stop.is_set():
        server.serve(SERVE_SECONDS)
        if time.monotonic() - pruned > _PRUNE_SECONDS:
            outbox.prune(time.time())
            pruned = time.monotonic()
        if settings.changed() and settings.renewed():
            break
    server.close()
    deadline = time.monotonic() + SECONDS_TO_STOP
    for delivery in deliveries.values():
        delivery.stop(max(0.0, deadline - time.monotonic()))
    outbox.close()
    start_again("exporter.notifier", stop)
    return 0


def command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Return the options, of these flags or of those of this process."""
    flags = CommandLine(
        "python -m exporter.notifier",
        "Deliver Alertmanager's notifications to Feishu, DingTalk, WeCom and, by Apprise, other services.",
        arguments,
    )
    flags.add_address(9414)
    flags.add("state-dir", Path, Path("notifier"), "folder of the queue")
    flags.add("channels", _channels, (), "the receivers, as JSON")
    flags.add(
        "repeat",
        positive,
        7200.0,
        "seconds after which an identical notification is a repeat, not a duplicate",
    )
    flags.add("prometheus", string, "http://127.0.0.1:9090", "URL of Prometheus")
    flags.add("alertmanager", string, "http://127.0.0.1:9093", "URL of Alertmanager")
    flags.add("password-file", Path, None, "file with the password of the first two, and of the webhook")
    flags.add(
        "link", string, "", "where people open this service's pages; silences are Alertmanager's without"
    )
    flags.add("exporter-link", string, "http://127.0.0.1:9410", "public URL of the run exporter")
    flags.add("alertmanager-link", string, "http://127.0.0.1:9093", "public URL of Alertmanager")
    flags.add("grafana-link", string, "", "public URL of Grafana, if any")
    flags.add("waits", texts, {}, "seconds between the onset of each alert and its start, as JSON")
    flags.add("texts", texts, {}, "translations of messages by English text, as JSON")
    return flags


def _channels(value: object) -> tuple[Channel, ...]:
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
        return tuple(_channel(**each) for each in found)
    except (ValueError, TypeError, KeyError) as problem:
        raise argparse.ArgumentTypeError(f"{value!r}: {problem}. Expected a list of receivers.") from None


def _channel(
    name: str, kind: str, url_file: str, secret_file: str | None = None, keyword: str | None = None
) -> Channel:
    if kind not in ROBOTS:
        raise ValueError(f"unknown kind {kind}")
    return Channel(
        name, kind, Secrets(Path(url_file), Path(secret_file) if secret_file else None), keyword or ""
    )


if __name__ == "__main__":
    process.run(main)
