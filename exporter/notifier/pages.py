"""The routes: Alertmanager's webhook, the state of messages, the silence of a notification, metrics."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from exporter.http.exposition import Metric, Sample, own
from exporter.http.message import Answer, Request, metrics_page, text
from exporter.http.routes import Table
from exporter.http.service import HEADERS, WebhookError, clock, html_page, require_password
from exporter.notifier.channel import REASONS, Ended
from exporter.notifier.delivery import Delivery
from exporter.notifier.outbox import WAITING, Entry, Outbox, PayloadError, parse
from exporter.notifier.stack_client import SILENCE_HOURS, StackClient
from exporter.notifier.wording import Wording, clipped, one_line, silenced_by

logger = logging.getLogger(__name__)
PROBLEM_SECONDS = 900.0
"""For how long a metric says why an attempt failed: the alert looks back 5 minutes and lasts 10 longer."""
_REASONS = {
    "retries": tuple(reason for reason, ended in REASONS.items() if ended is Ended.RETRY),
    "failures": tuple(REASONS),
}
"""Reasons by what they count as: each has a sample from the start, or Prometheus misses it."""


class Site:
    """The routes; ``deliveries`` are by receiver, ``alertmanager`` is where people open it."""

    def __init__(
        self,
        outbox: Outbox,
        deliveries: Mapping[str, Delivery],
        *,
        wording: Wording,
        stack: StackClient,
        password_file: Path | None,
        alertmanager: str,
    ) -> None:
        self._outbox, self._deliveries, self._wording = outbox, deliveries, wording
        self._stack, self._password_file, self._alertmanager = stack, password_file, alertmanager
        self._refused: dict[str, int] = {"disk": 0, "body": 0, "unknown_receiver": 0}

    def routes(self) -> Table:
        """Return the pages by path. Following or previewing a link silences nothing: a silence is a POST."""
        return {
            "/": {"GET": self._index},
            "/alerts/*": {"POST": self._webhook},
            "/silence/*": {"GET": self._asked, "POST": self._silence},
            "/api/v1/deliveries": {"GET": self._json},
            "/metrics": {"GET": self._metrics},
            "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
        }

    def _webhook(self, request: Request) -> Answer:
        try:
            require_password(request.headers, self._password_file)
        except WebhookError as refused:
            return refused.answer
        name = unquote(request.name)
        if name not in self._deliveries:
            self._refused["unknown_receiver"] += 1
            return text(
                "404 Not Found", f"{name[:200]!r} is not a receiver of the notifier. Fix: `make up`.\n"
            )
        try:
            notification, kept = parse(request.body)
        except PayloadError as problem:
            self._refused["body"] += 1
            words = f"This is not a notification ({problem}). Expected: the JSON of Alertmanager's webhook.\n"
            return text("400 Bad Request", words)
        try:
            new = self._outbox.add(name, notification.group, notification.change, kept, notification.test)
        except sqlite3.Error as problem:
            self._refused["disk"] += 1
            logger.error("A notification cannot be written to the queue: %s.", problem)  # noqa: TRY400
            words = f"The queue cannot be written: {problem}. Fix: free space. Alertmanager retries.\n"
            return text("503 Service Unavailable", words)
        delivery = self._deliveries[name]
        if new:
            delivery.counts.received[notification.receiver] += 1
            delivery.wake()
        else:
            delivery.counts.repeated[notification.receiver] += 1
        return text("200 OK", "ok\n")

    def _index(self, _: Request) -> Answer:
        channels = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(each.kind)}</td><td>{self._state(each)}</td></tr>"
            for name, each in self._deliveries.items()
        )
        rows = "".join(
            f"<tr><td>{clock(entry.received)}</td><td>{escape(entry.channel)}</td>"
            f"<td>{escape(self._title(entry))}</td><td>{escape(_ended(entry))}</td></tr>"
            for entry in self._outbox.latest(most=100)
        )
        body = (
            f"<table><tr><th>receiver</th><th>kind</th><th>state</th></tr>{channels}</table>"
            f"<h2>Latest messages</h2><table><tr><th>received</th><th>receiver</th><th>message</th>"
            f"<th>state</th></tr>{rows}</table>"
        )
        return html_page("Notifier", body)

    def _state(self, delivery: Delivery) -> str:
        problem = delivery.problem
        return escape(f"{problem.reason}: {problem.text}") if problem else "ok"

    def _json(self, request: Request) -> Answer:
        query = parse_qs(request.query)
        entries = self._outbox.latest(query["test"][0] if "test" in query else None)
        document = {
            "deliveries": [
                {
                    "id": entry.id,
                    "receiver": entry.channel,
                    "kind": self._deliveries[entry.channel].kind if entry.channel in self._deliveries else "",
                    "title": self._title(entry),
                    "test": entry.test,
                    "received": entry.received,
                    "state": entry.state,
                    "attempts": entry.attempts,
                    "reason": entry.reason,
                    "answer": entry.answer,
                    "ended": entry.ended,
                }
                for entry in entries
            ]
        }
        return Answer("200 OK", "application/json", json.dumps(document).encode(), HEADERS)

    def _asked(self, request: Request) -> Answer:
        labels = self._labels(request.name)
        if not labels:
            return self._gone()
        translate = self._wording.translate
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in labels.items()
        )
        button = translate("Silence for {hours} h", hours=SILENCE_HOURS)
        body = f'<table>{rows}</table><form method="post"><p><button>{escape(button)}</button></p></form>'
        return html_page(translate("Silence this alert?"), body)

    def _silence(self, request: Request) -> Answer:
        labels, translate = self._labels(request.name), self._wording.translate
        if not labels:
            return self._gone()
        if problem := self._stack.silence(labels, request.client):
            return text("502 Bad Gateway", f"{problem}\n")
        logger.info(
            "Created a silence of %d h for %s, requested by %s.", SILENCE_HOURS, labels, request.client
        )
        words = translate("It is silenced for {hours} h.", hours=SILENCE_HOURS)
        link = f'<a href="{escape(self._alertmanager)}/#/silences">{escape(translate("All silences"))}</a>'
        return html_page(translate("Silenced"), f"<p>{escape(words)} {link}</p>")

    def _gone(self) -> Answer:
        return text(
            "404 Not Found",
            f"This message is no longer stored. Create a silence at {self._alertmanager}/#/alerts.\n",
        )

    def _labels(self, name: str) -> dict[str, str]:
        """Return what a message with this number is silenced by, nothing if there is none to silence."""
        entry = (
            self._outbox.entry(int(name)) if name.isascii() and name.isdecimal() and len(name) < 16 else None
        )
        if entry is None:
            return {}
        notification, _ = parse(entry.payload)
        return {} if notification.is_test else silenced_by(notification.labels)

    @staticmethod
    def _title(entry: Entry) -> str:
        labels = parse(entry.payload)[0].labels
        return one_line(clipped(" ".join(filter(None, (labels.get("alertname"), labels.get("run")))), 200))

    def _metrics(self, _: Request) -> Answer:
        return metrics_page(self.samples(time.time()))

    def samples(self, now: float) -> Iterator[Metric]:
        """Yield the metrics of the service."""
        queue = self._outbox.queue()
        channels = self._deliveries.values()
        names = [(each, receiver) for each in channels for receiver in (each.name, f"(test) {each.name}")]

        def counted(what: str) -> list[Sample]:
            return [
                (_labels(each, receiver), getattr(each.counts, what)[receiver]) for each, receiver in names
            ]

        def by_reason(what: str) -> list[Sample]:
            return [
                ({**_labels(each, receiver), "reason": reason}, getattr(each.counts, what)[receiver, reason])
                for each, receiver in names
                for reason in _REASONS[what]
            ]

        def of_channel(value: Any) -> list[Sample]:
            return [(_labels(each, each.name), value(each)) for each in channels]

        yield own("notifier_received_total", "Notifications received from Alertmanager.", counted("received"))
        yield own(
            "notifier_repeated_total", "Notifications that were queued or sent already.", counted("repeated")
        )
        yield own(
            "notifier_delivered_total", "Notifications that the channel accepted.", counted("delivered")
        )
        yield own(
            "notifier_delivery_seconds_total",
            "Seconds from the webhook to the channel's answer, summed over delivered notifications.",
            counted("seconds"),
        )
        yield own(
            "notifier_requests_total",
            "Messages sent; one may hold several notifications.",
            of_channel(lambda each: each.counts.requests[each.name]),
        )
        yield own(
            "notifier_retries_total", "Failed attempts that are retried, by reason.", by_reason("retries")
        )
        yield own(
            "notifier_failures_total",
            "Attempts that failed permanently, or until the settings change.",
            by_reason("failures"),
        )
        yield own(
            "notifier_error_info",
            "What the channel answered to the last attempt that failed, for 15 minutes; always 1.",
            [
                ({**_labels(each, each.name), "reason": outcome.reason, "text": outcome.text}, 1)
                for each in channels
                for outcome, failed in filter(None, (each.failure,))
                if 0 <= now - failed < PROBLEM_SECONDS
            ],
        )
        yield own(
            "notifier_queue_length",
            "Queued notifications.",
            of_channel(lambda each: queue.get(each.name, (0, now))[0]),
        )
        yield own(
            "notifier_queue_oldest_seconds",
            "Age of the oldest queued notification.",
            of_channel(lambda each: max(0.0, now - queue.get(each.name, (0, now))[1])),
        )
        refused: list[Sample] = [({"reason": reason}, count) for reason, count in self._refused.items()]
        yield own("notifier_webhooks_refused_total", "Notifications that the notifier refused.", refused)


def _labels(delivery: Delivery, receiver: str) -> dict[str, str]:
    return {"integration": delivery.kind, "receiver_name": receiver}


def _ended(entry: Entry) -> str:
    answer = f": {entry.answer}" if entry.answer else ""
    if entry.state == WAITING:
        return (
            f"{entry.state}, {entry.attempts} attempts{f', {entry.reason}' if entry.reason else ''}{answer}"
        )
    return f"{entry.state} {clock(entry.ended or 0.0)}{answer}"
