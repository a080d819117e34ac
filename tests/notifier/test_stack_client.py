"""What a message says of its run, and the silence of its link, where no one answers."""

from __future__ import annotations

from exporter.notifier.outbox import parse
from exporter.notifier.stack_client import StackClient
from exporter.notifier.wording import NOTHING_KNOWN
from tests.notifier.stack import alert, payload

NOWHERE = "http://127.0.0.1:9"


def test_nothing_is_known_where_no_one_answers() -> None:
    stack = StackClient(NOWHERE, NOWHERE, None)
    notification, _ = parse(payload(alert(run="a")))

    assert stack.known(notification) == NOTHING_KNOWN
    assert "does not answer" in stack.silence(notification.labels, "127.0.0.1")
