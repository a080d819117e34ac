"""Each single process of the real stack is killed in turn: every part answers again, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from stepwatch.system import http_client
from stepwatch.system.processes import SUPERVISORD
from tests.e2e.writer import writing
from tests.native.installation import Installation, python_module
from tests.own_logs import SICK
from tests.real import WebhookSink
from tests.real.silences import comments, silence
from tests.real.waiting import eventually, in_time

pytestmark = pytest.mark.e2e

PROMISED_SECONDS = 15
ENDED_SECONDS = 5
NOTE = "kept over kills"
SAVED_SECONDS = 12
"""Alertmanager writes down what it sent every 10 s."""
PAGES = {"RewardCollapse", "KLExplosion"}


def running(installation: Installation) -> dict[str, int]:
    """Every process of the stack by what it runs."""
    named = {}
    for pid in installation.pids():
        with suppress(FileNotFoundError):  # it ended just now
            program = Path(f"/proc/{pid}/exe").readlink().name
            named[python_module(pid) or program] = pid
    return named


def answering(installation: Installation) -> bool:
    parts = json.loads((installation.state / "parts.json").read_text())
    ready = [f"http://{part['web']['address']}{part['web']['ready']}" for part in parts if part["web"]]
    return len(ready) >= 4 and all(http_client.read(page, timeout=2) is not None for page in ready)


def _silence(installation: Installation) -> None:
    silence(installation.url("alertmanager"), "run", "any", NOTE)
    saved = installation.state / "data/alertmanager/silences"
    eventually(lambda: saved.exists() and NOTE.encode() in saved.read_bytes())


def test_after_a_kill_of_any_single_process_every_part_answers_and_no_alert_is_lost_or_doubled(
    installation: Installation,
) -> None:
    runs = installation.folder / "my runs"
    with WebhookSink() as sink:

        def paged(*names: str) -> bool:
            return {(page, name) for page in PAGES for name in names} <= {*_sent(sink, "firing")}

        installation.configure(f"receivers: [{{name: sink, webhook: {{url: '{sink.url}'}}}}]\n")
        done = installation.up("--demo")  # with GPUs
        assert done.returncode == 0, done.stdout + done.stderr
        with writing(SICK, runs / "before.log", "--stay"):
            eventually(lambda: paged("before"), pause=1)
            _silence(installation)
            time.sleep(SAVED_SECONDS)
            with writing(SICK, runs / "during.log", "--rate", "2", "--stay"):
                _kill_each(installation)
                eventually(lambda: paged("before", "during"), pause=1)
        eventually(lambda: installation.run("status").returncode == 0)
        sent = [about for about in _sent(sink, "firing") if about[1] == "before"]
        assert len(sent) == len(set(sent))
        assert not {run for _, run in _sent(sink, "resolved")} & {"before", "during"}


def _sent(sink: WebhookSink, status: str) -> list[tuple[str, str]]:
    """Name and run of each alert that arrived."""
    alerts = [alert for message in list(sink.received) for alert in message.alerts]
    about = [each["labels"] for each in alerts if each["status"] == status]
    return [(labels["alertname"], labels.get("run", "")) for labels in about]


def _kill_each(installation: Installation) -> None:
    before = running(installation)
    assert {SUPERVISORD, "exporter.gpu"} <= set(before)

    for name in before:
        old = running(installation)
        os.kill(old[name], signal.SIGKILL)
        begun = time.monotonic()
        if name == SUPERVISORD:
            eventually(lambda: not installation.pids())
            assert in_time(time.monotonic() - begun, ENDED_SECONDS)
            assert installation.run("status").returncode == 3
            done = installation.up("--demo")
            assert done.returncode == 0, done.stdout + done.stderr
            begun = time.monotonic()
        eventually(lambda name=name, old=old: running(installation).get(name) not in (None, old[name]))
        eventually(lambda: answering(installation))
        took = time.monotonic() - begun
        print(f"{name}: {took:.1f} s")
        assert in_time(took, PROMISED_SECONDS), name
        eventually(lambda: running(installation).keys() == before.keys())
        assert comments(installation.url("alertmanager")) == [NOTE], name
