"""An agent says what the hub does not take, and why."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stepwatch.services.agent import Sender
from tests.real.answering import Answering

REFUSAL = (
    'time=2026-01-01T00:00:00Z level=ERROR msg="non-recoverable error" component=remote remote_name=hub '
    'err="server returned HTTP status 401 Unauthorized: not \\"the\\" token\\n"\n'
)


def metrics(sent: float, failed: int, name: str = "hub") -> str:
    labels = f'{{remote_name="{name}",url="https://hub:9415/api/v1/write"}}'
    return (
        f"prometheus_remote_storage_queue_highest_sent_timestamp_seconds{labels} {sent}\n"
        f"prometheus_remote_storage_samples_failed_total{labels} {failed}\n"
    )


def faults(tmp_path: Path, before: str, now: str = "", log: str = REFUSAL) -> list[str]:
    """What is said where the page of metrics was one a moment ago, and is another one now."""
    (tmp_path / "log").write_text(log)
    with Answering(body=now) as server:
        return list(Sender(server.url, tmp_path / "log").faults(before))


def test_the_hub_that_takes_all_is_named_with_the_age_of_the_newest_sample(tmp_path: Path) -> None:
    said = Sender("", tmp_path / "log").taken(metrics(time.time() - 3600, 0))

    assert said == "The hub https://hub:9415 accepts its samples (newest 1h 0m old)."


def test_a_hub_that_takes_all_is_not_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, metrics(time.time(), 0)) == []
    # What was refused once is over.
    assert faults(tmp_path, metrics(time.time() - 5, 7), metrics(time.time(), 7)) == []


@pytest.mark.parametrize("name", ["hub", "another"])
def test_a_sender_that_has_sent_nothing_names_its_log(tmp_path: Path, name: str) -> None:
    (said,) = faults(tmp_path, metrics(0 if name == "hub" else time.time(), 0, name), log="\n")

    assert said == f"The hub has not accepted a sample since the sender started: {tmp_path}/log says why."


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "hub.ca_file"),
        ("http: server gave HTTP response to HTTPS client", "agents.cert_file"),
        ("tls: failed to verify certificate: x509: certificate is valid for hub, not h", "subjectAltName"),
        ("tls: failed to verify certificate: x509: certificate has expired", "replace agents.cert_file"),
        ("dial tcp: lookup hub on 10.0.0.1:53: no such host", "must resolve here"),
        ("dial tcp 10.0.0.7:9415: connect: connection refused", "`make status` on the hub"),
        ("context deadline exceeded", "firewall"),
    ],
)
def test_what_keeps_a_sender_from_sending_is_said_with_the_fix(tmp_path: Path, error: str, fix: str) -> None:
    log = f'level=WARN msg="Failed to send batch, retrying" err="Post \\"https://h\\": {error}"\n'
    (said,) = faults(tmp_path, metrics(0, 0), log=log)

    assert f'since the sender started: Post "https://h": {error}. Fix: ' in said
    assert fix in said


def test_samples_that_wait_are_said_with_how_long_they_are_kept(tmp_path: Path) -> None:
    (said,) = faults(tmp_path, metrics(time.time() - 7260, 0))

    assert said.startswith("The hub has not accepted the samples of the last 2h 1m: ")
    assert said.endswith("They are kept for 12h and sent later.")


def test_a_refusal_is_said_in_the_hubs_own_words(tmp_path: Path) -> None:
    (said,) = faults(tmp_path, metrics(time.time() - 5, 7), metrics(time.time(), 9))

    assert said.startswith(
        "The hub refuses the samples, which are lost: "
        'server returned HTTP status 401 Unauthorized: not "the" token. Fix: `make agent NODE=name RENEW=1`'
    )


def test_a_sender_that_does_not_answer_is_reported_by_its_state_alone(tmp_path: Path) -> None:
    assert list(Sender("http://127.0.0.1:1", tmp_path / "log").faults(None)) == []
