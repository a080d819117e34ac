"""An agent's own page says that the hub does not take its samples."""

from __future__ import annotations

import time

import pytest

from exporter.engine_client import Client
from exporter.runs.sender_health import SenderHealth
from tests.real.answering import Answering


def page(age: float, failed: int) -> str:
    labels = '{remote_name="hub",url="https://hub:9415/api/v1/write"}'
    return (
        f"prometheus_remote_storage_queue_highest_sent_timestamp_seconds{labels} {time.time() - age}\n"
        f"prometheus_remote_storage_samples_failed_total{labels} {failed}\n"
    )


@pytest.mark.parametrize(
    ("pages", "says"),
    [
        (((5, 0), (5, 0)), None),
        (((5, 7), (5, 7)), None),  # what was refused once is over
        (((5, 7), (5, 9)), "refuses this machine's samples, which are lost"),
        (((5, 0), (90, 0)), "takes no samples of this machine; they are kept for 12h"),
        (((5, 0), None), "does not answer"),
    ],
)
def test_what_the_hub_does_not_take_is_a_fault_of_the_agents_page(
    pages: tuple[tuple[float, int] | None, ...], says: str | None
) -> None:
    sender = SenderHealth(Client("http://127.0.0.1:1"))
    for values in pages:
        with Answering(body=page(*values) if values else "") as server:
            sender._prometheus = Client(server.url if values else "http://127.0.0.1:1")
            sender.check()
    assert (says is None) == (sender.faults == ())
    assert says is None or says in sender.faults[0]
    assert says is None or "`make status`" in sender.faults[0]
