"""Actions with a real Alertmanager and real trainers: what was configured happens once, and nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from exporter.bridge.actions import OFF
from stepwatch.system import http_client
from tests.alertmanager.route import post
from tests.bridge.around import EXPLOSION, Around
from tests.bridge.webhook import alert, payload
from tests.documented import shown_and_documented
from tests.real.at_once import Scenarios
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e
VETO = 10
STOP = [("intent", "stop"), ("result", "stop"), ("closed", "")]
INTERVAL = 10
"""Of groups, in seconds: the shortest for which Alertmanager retries."""
LATER = VETO + INTERVAL + 2
"""Seconds after which what has not happened does not: a window, and a group's interval."""


scenario = Scenarios()


@pytest.fixture(name="around", scope="module", params=[pytest.param("0.25", marks=pytest.mark.world), "0.31"])
def _around(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Around]:
    """One stack for all tests, each of which has runs of its own."""
    policies = [
        {**EXPLOSION, "runs": "evident", "do": ["evidence", "notify", "stop"]},
        {**EXPLOSION, "runs": "killed", "kill_after": "1s"},
        EXPLOSION,
    ]
    folder = tmp_path_factory.mktemp("around")
    with Around(folder, request.param, policies=policies, veto=f"{VETO}s", per_day=1).up() as around:
        yield around


@scenario
def a_run_is_stopped_once_after_evidence_and_an_announcement(around: Around) -> None:
    trainer, other = around.train("evident"), around.train("other")
    labels = around.fire("evident")
    pending = around.wait_message("ActionPending", "evident")
    action = around.wait_closed("evident", "done")
    trainer.wait()

    assert pending["summary"] == "Run will be stopped unless you silence the alert"
    assert (
        "/#/silences/new?filter=%7Balertname%3D%22KLExplosion%22%2Crun%3D%22evident%22%7D"
        in pending["description"]
    )
    assert around.launch("evident").cause == f"stopped by stepwatch: KLExplosion ({action['id']})"
    assert around.wait_message("ActionTaken", "evident")["summary"] == "Run was stopped"
    with tarfile.open(action["results"]["evidence"]) as tar:
        (config,) = (each for each in tar if each.name.endswith("/stack/config.yaml"))
        assert tar.extractfile(config).read() == around.config_file.read_bytes()  # type: ignore[union-attr]
    evidence = [("intent", "evidence"), ("result", "evidence")]
    assert around.audit("evident") == [("opened", ""), ("announced", ""), *evidence, *STOP]

    post(around.alertmanager, labels)
    time.sleep(LATER)
    assert around.audit("evident").count(("intent", "stop")) == 1
    assert other.poll() is None


@scenario
def a_silence_during_the_window_vetoes_the_attempt_for_good(around: Around) -> None:
    trainer = around.train("vetoed")
    labels = around.fire("vetoed")
    around.wait_pending("vetoed")
    silence = around.silence("vetoed")
    time.sleep(1)
    around.expire(silence)
    around.wait_closed("vetoed", "vetoed")
    post(around.alertmanager, labels)
    time.sleep(LATER)

    assert around.audit("vetoed") == [("opened", ""), ("announced", ""), ("closed", "silenced")]
    assert trainer.poll() is None
    assert (
        "the alert was silenced during the veto window"
        in around.wait_message("ActionTaken", "vetoed")["description"]
    )


@scenario
def an_alert_whose_silence_expires_is_announced_then(around: Around) -> None:
    trainer = around.train("expiring")
    around.silence("expiring", 6)
    around.fire("expiring")
    time.sleep(4)
    assert around.known("expiring") == []
    around.wait_closed("expiring", "done")
    assert trainer.wait() == -signal.SIGTERM


@scenario
def a_recovery_within_keep_firing_for_drops_it_and_the_next_onset_is_announced(around: Around) -> None:
    trainer = around.train("lingering")
    labels = around.fire("lingering")
    around.wait_pending("lingering")
    around.prometheus.firing.remove(labels)
    around.prometheus.lingering.append(labels)
    around.wait_closed("lingering", "dropped")
    time.sleep(LATER)
    assert trainer.poll() is None

    around.prometheus.lingering.remove(labels)
    around.prometheus.firing.append(labels)
    around.wait_closed("lingering", "done")
    assert trainer.wait() == -signal.SIGTERM
    opened = [("opened", ""), ("announced", "")]
    assert around.audit("lingering") == [*opened, ("closed", "recovered"), *opened, *STOP]


@scenario
def a_second_attempt_is_announced_only_for_an_alert_that_began_in_it(around: Around) -> None:
    first = around.train("again")
    labels = around.fire("again")
    around.wait_pending("again")
    first.terminate()
    first.wait()
    second = around.train("again")
    time.sleep(LATER)
    assert (around.launch("again").attempt, second.poll()) == (2, None)
    assert around.audit("again").count(("announced", "")) == 1

    post(around.alertmanager, labels, over=True)
    time.sleep(INTERVAL + 2)  # sooner, Alertmanager takes it for the same
    around.fire("again")
    around.wait_closed("again", "done")
    assert second.wait() == -signal.SIGTERM
    assert around.audit("again").count(("announced", "")) == 2


@scenario
def a_run_that_the_wrapper_did_not_start_is_refused(around: Around) -> None:
    trainer = around.train("tee", wrapped=False)
    around.fire("tee")
    action = around.wait_closed("tee", "refused")

    assert "the run was not started by `stepwatch run`" in action["state"]
    assert trainer.poll() is None


@scenario
def a_trainer_that_ignores_sigterm_is_killed_only_by_a_policy_that_says_so(around: Around) -> None:
    deaf, _ = around.train("deaf", "deaf"), around.train("killed", "deaf")
    for name in ("deaf", "killed"):
        around.fire(name)
    for name in ("deaf", "killed"):
        around.wait_closed(name, "done")

    assert deaf.poll() is None
    eventually(lambda: around.launch("killed").signal == "SIGKILL")


@scenario
def the_limit_of_a_day_is_kept(around: Around) -> None:
    for attempt, outcome in ((1, "done"), (2, "refused")):
        trainer = around.train("daily")
        post(
            around.alertmanager,
            {"alertname": "KLExplosion", "run": "daily", "severity": "critical", "topic": "kl"},
            over=True,
        )
        time.sleep(INTERVAL + 2)
        around.fire("daily")
        around.wait_closed("daily", outcome)
        if outcome == "done":
            assert trainer.wait() == -signal.SIGTERM
        assert (around.launch("daily").attempt, around.launch("daily").held) == (attempt, outcome != "done")


@scenario
def a_forged_request_does_nothing(around: Around) -> None:
    trainer = around.train("forged")
    body = payload(alert(run="forged"), receiver="(actions)")
    assert around.ask("/actions", "POST", body)[0] == 401
    password = around.state.internal_password.read_text().strip()
    login = f"Basic {b64encode(f'internal:{password}'.encode()).decode()}"
    assert around.ask("/actions", "POST", b"{}", Authorization=login)[0] == 400
    future = body.replace(b"2026-01-02T15", b"2036-01-02T15")
    for forged in (body, future):  # Alertmanager knows no such alert
        assert around.ask("/actions", "POST", forged, Authorization=login)[0] in (200, 503)
    time.sleep(LATER)

    assert around.known("forged") == []
    assert trainer.poll() is None
    assert password not in around.bridge.log.read_text()


@pytest.fixture(name="running", scope="module")
def _running(around: Around) -> Iterator[dict[str, Future[None]]]:
    with scenario.running(around) as running:
        yield running


@pytest.mark.parametrize("name", scenario)
def test_without_other_disturbances(running: dict[str, Future[None]], name: str) -> None:
    running[name].result()


def test_a_dry_run_announces_and_stops_nothing(tmp_path: Path) -> None:
    with Around(tmp_path, dry_run=True).up() as around:
        trainer = around.train("a")
        around.fire("a")
        action = around.wait_closed("a", "done")

        assert action["results"] == {"stop": "dry run: not done"}
        for name in ("ActionPending", "ActionTaken"):
            assert around.wait_message(name, "a")["summary"] == "Dry run: this run would be stopped"
        assert around.launch("a").ended is None
        assert trainer.poll() is None


def test_the_kill_switch_ends_what_is_announced(around: Around) -> None:
    trainer = around.train("switched")
    around.fire("switched")
    around.wait_pending("switched")
    (around.data / OFF).touch()  # the command takes longer than the window on a busy machine
    action = around.wait_closed("switched", "dropped")
    assert "The kill switch is on" in around.command().stdout
    time.sleep(LATER)
    assert around.command("--kill-switch", "off").returncode == 0
    assert not (around.data / OFF).exists()
    assert around.command("--kill-switch", "on").returncode == 0
    assert (around.data / OFF).exists()
    (around.data / OFF).unlink()

    assert "the kill switch is on" in action["state"]
    assert trainer.poll() is None


def test_a_bridge_killed_in_the_window_acts_once_when_it_is_over(around: Around) -> None:
    trainer = around.train("window")
    around.fire("window")
    around.wait_pending("window")
    around.bridge.kill()
    around.bridge.start()
    around.wait_closed("window", "done")

    assert trainer.wait() == -signal.SIGTERM
    assert around.audit("window") == [("opened", ""), ("announced", ""), *STOP]


def test_a_bridge_killed_between_intent_and_result_says_so_and_repeats_nothing(around: Around) -> None:
    trainer = around.train("unknown")
    around.fire("unknown")
    around.wait_pending("unknown")
    os.kill(trainer.pid, signal.SIGSTOP)  # the wrapper does not answer
    eventually((around.runs / "unknown.log.request").exists, seen=around.log)
    around.bridge.kill()
    around.bridge.start()
    action = around.wait_closed("unknown", "interrupted")
    os.kill(trainer.pid, signal.SIGCONT)
    trainer.wait()
    time.sleep(LATER)

    assert "may be complete" in action["state"]
    assert around.audit("unknown").count(("intent", "stop")) == 1
    assert around.wait_message("ActionTaken", "unknown")["summary"] == "Action on the run was interrupted"


def test_a_clock_that_is_set_back_begins_the_window_anew(around: Around) -> None:
    trainer = around.train("clock")
    around.fire("clock")
    around.wait_pending("clock")
    around.bridge.kill()
    file = around.data / "audit.jsonl"
    *before, last = file.read_text().splitlines()
    announced = json.loads(last)
    assert announced["event"] == "announced"
    file.write_text("\n".join([*before, json.dumps({**announced, "time": announced["time"] + 3600})]) + "\n")
    around.bridge.start()
    around.wait_closed("clock", "done")

    assert trainer.wait() == -signal.SIGTERM
    assert around.audit("clock") == [("opened", ""), ("announced", ""), ("announced", ""), *STOP]


def test_without_an_answer_of_prometheus_nothing_is_done(around: Around) -> None:
    trainer = around.train("silent")
    labels = around.fire("silent")
    around.wait_pending("silent")
    around.prometheus.status = 503
    time.sleep(LATER)
    assert trainer.poll() is None
    around.prometheus.status = 200
    around.wait_closed("silent", "done")
    assert trainer.wait() == -signal.SIGTERM
    assert labels in around.prometheus.firing


def test_a_restart_of_alertmanager_begins_the_window_anew(around: Around) -> None:
    trainer = around.train("restarted")
    around.alertmanager.stop()
    time.sleep(0.01)
    labels = {"alertname": "KLExplosion", "run": "restarted", "severity": "critical", "topic": "kl"}
    around.prometheus.firing.append(labels)
    around.alertmanager.start()  # it was down before the onset
    post(around.alertmanager, labels)
    around.wait_pending("restarted")
    around.alertmanager.stop()
    around.alertmanager.start()
    post(around.alertmanager, labels)
    around.wait_closed("restarted", "done")

    assert trainer.wait() == -signal.SIGTERM
    assert around.audit("restarted") == [("opened", ""), ("announced", ""), ("announced", ""), *STOP]


def test_an_action_that_waits_is_no_failure_of_a_notification(around: Around) -> None:
    around.train("waiting")
    around.fire("waiting")
    around.wait_closed("waiting", "done")

    metrics = http_client.read(f"{around.alertmanager.url}/metrics") or ""
    found = re.findall(r"^alertmanager_notifications_failed_total\{(.*)\} [1-9]", metrics, re.MULTILINE)
    failed = {(labels["integration"], labels.get("receiver_name", "")) for labels in map(_labels, found)}
    assert ("webhook", "(actions)") in failed or ("webhook", "") in failed
    page = around.ask("/metrics")[1]
    served = re.findall(r"^stepwatch_bridge_receiver_info\{(.*)\} 1", page, re.MULTILINE)
    assert failed <= {(labels["integration"], labels["receiver_name"]) for labels in map(_labels, served)}


def _labels(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def test_its_metrics_are_those_that_are_documented(around: Around) -> None:
    shown, documented = shown_and_documented(around.ask("/metrics")[1], "The bridge")
    assert shown == documented


@pytest.mark.parametrize("flag", ["--policies=[{}]", "--veto=-1", "--robots=x"])
def test_wrong_options_are_refused_in_words(tmp_path: Path, flag: str) -> None:
    command = [sys.executable, "-m", "exporter.bridge", f"--state-dir={tmp_path}", flag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "Expected" in done.stderr
    assert "Traceback" not in done.stderr
