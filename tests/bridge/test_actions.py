"""The service as a process, with a real Alertmanager and real trainers: it does what was configured, once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actions.stack import EXPLOSION, Around

from tests.alertmanager.route import post
from tests.documented import shown_and_documented
from tests.real.waiting import eventually
from tests.runs.light.browser import started

EVENTS = ["opened", "intent", "result", "announced", "intent", "result", "closed"]
PIDS = ("group", "given-away")


@pytest.fixture(name="around", scope="module")
def _around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Around]:
    """One service for all tests, each of which has runs of its own."""
    folder = tmp_path_factory.mktemp("around")
    policies = [
        {**EXPLOSION, "runs": "evident", "do": ["evidence", "notify", "stop"]},
        {**EXPLOSION, "runs": "killed", "kill_after": "1s"},
        EXPLOSION,
    ]
    targets = [{"runs": name, "pid_file": str(folder / f"{name}.pid")} for name in PIDS]
    with Around(folder, policies=policies, targets=targets, cooldown="0s", veto="8s").up() as around:
        yield around


def test_a_run_is_stopped_once_after_evidence_and_an_announcement(around: Around) -> None:
    trainer, other = around.train("evident"), around.train("other")
    labels = around.fire("evident")
    pending = around.wait_message("ActionPending", "evident")
    action = around.wait_closed("evident", "done")
    trainer.wait()

    assert pending["summary"] == "Run will be stopped unless you veto"
    assert f"Veto: {around.url}/action/{action['id']}" in pending["description"]
    assert around.launch("evident").cause == f"stopped by stepwatch: KLExplosion ({action['id']})"
    assert around.wait_message("ActionTaken", "evident")["summary"] == "Run was stopped"
    archive = Path(action["results"]["evidence"]["text"])
    with tarfile.open(archive) as tar:
        (config,) = (each for each in tar if each.name.endswith("/stack/config.yaml"))
        assert tar.extractfile(config).read() == around.config_file.read_bytes()  # type: ignore[union-attr]
    assert [event for event, _ in around.audit("evident")] == EVENTS

    post(around.alertmanager, labels)
    around.actions.kill()
    around.actions.start()
    post(around.alertmanager, labels)
    around.let_look()
    assert around.audit("evident").count(("intent", "stop")) == 1
    assert other.poll() is None


def test_a_dry_run_announces_and_stops_nothing(tmp_path: Path) -> None:
    with Around(tmp_path, dry_run=True).up() as around:
        trainer = around.train("a")
        around.fire("a")
        action = around.wait_closed("a", "done")

        assert action["results"]["stop"] == {"done": False, "text": "dry run: not done", "dry": True}
        written = map(json.loads, (around.data / "audit.jsonl").read_text().splitlines())
        assert {entry["done"] for entry in written if entry["event"] == "result"} == {False}
        for name in ("ActionPending", "ActionTaken"):
            assert around.wait_message(name, "a")["summary"] == "Dry run: this run would be stopped"
        assert around.launch("a").ended is None
        assert trainer.poll() is None


def test_a_veto_keeps_the_run_and_a_link_that_is_followed_does_not(around: Around) -> None:
    trainers = {name: around.train(name) for name in ("by-page", "by-command")}
    around.fire("by-page")
    action = around.wait_pending("by-page")["id"]
    status, page = around.ask(f"/action/{action}")
    assert (status, '<form method="post"' in page) == (200, True)
    assert around.ask(f"/veto/{action}")[0] == 405
    assert around.ask(f"/veto/{action}", "POST", Origin="http://evil.example")[0] == 403
    assert around.known("by-page")[0]["outcome"] == ""
    # As a browser does it, which adds where the form comes from.
    with started() as browser:
        browser.open(f"{around.url}/action/{action}")
        browser.driver.find_element("tag name", "button").click()
        # The click returns while the next page is still to come; this one says "unless vetoed".
        eventually(lambda: "a person vetoed it" in str(browser.tell("document.body?.innerText")))
    assert around.known("by-page")[0]["outcome"] == "vetoed"

    around.fire("by-command")
    action = around.wait_pending("by-command")["id"]
    vetoed = around.command("--veto", action)
    assert (vetoed.returncode, vetoed.stdout[:7]) == (0, "Vetoed "), vetoed.stderr
    around.let_look(12)
    assert [around.known(name)[0]["outcome"] for name in trainers] == ["vetoed", "vetoed"]
    assert [each.poll() for each in trainers.values()] == [None, None]
    again = around.command("--veto", action)
    assert (again.returncode, "Too late" in again.stderr) == (2, True)
    assert "vetoed: a person vetoed it" in around.command().stdout


def test_the_kill_switch_ends_what_is_announced(around: Around) -> None:
    trainer = around.train("switched")
    around.fire("switched")
    around.wait_pending("switched")
    assert around.command("--kill-switch", "on").returncode == 0
    action = around.wait_closed("switched", "dropped")
    around.let_look(12)

    assert "the kill switch is on" in action["state"]
    assert trainer.poll() is None
    assert "The kill switch is on" in around.command().stdout
    assert around.command("--kill-switch", "off").returncode == 0
    assert not (around.data / "off").exists()


def test_a_service_killed_between_intent_and_result_reports_that_and_repeats_nothing(around: Around) -> None:
    trainer = around.train("unknown")
    around.fire("unknown")
    around.wait_pending("unknown")
    os.kill(trainer.pid, signal.SIGSTOP)  # the wrapper does not answer
    eventually((around.runs / "unknown.log.request").exists, seen=around.log)
    around.actions.kill()
    around.actions.start()
    action = around.wait_closed("unknown", "interrupted")
    os.kill(trainer.pid, signal.SIGCONT)
    trainer.wait()
    around.let_look()

    assert "may be complete" in action["state"]
    assert around.audit("unknown").count(("intent", "stop")) == 1
    assert around.wait_message("ActionTaken", "unknown")["summary"] == "Action on the run was interrupted"
    assert around.launch("unknown").stopped


def test_an_alert_that_is_older_than_the_service_causes_nothing(around: Around) -> None:
    trainer = around.train("old")
    around.actions.stop()
    around.fire("old")
    around.actions.start()
    eventually(lambda: ("ignored", "older") in around.audit("old"), seen=around.log)
    around.let_look()

    assert trainer.poll() is None
    assert around.known("old") == []


def test_another_attempt_of_the_run_is_left_alone(around: Around) -> None:
    first = around.train("again")
    around.fire("again")
    around.wait_pending("again")
    first.terminate()
    first.wait()
    around.wait_closed("again", "refused")
    second = around.train("again")
    around.let_look()

    assert (around.launch("again").attempt, second.poll()) == (2, None)


def test_an_alert_whose_condition_is_over_stops_nothing_while_it_lingers(around: Around) -> None:
    trainer = around.train("lingering")
    labels = around.fire("lingering")
    around.wait_pending("lingering")
    around.prometheus.firing.remove(labels)
    around.prometheus.lingering.append(labels)
    action = around.wait_closed("lingering", "dropped")
    around.let_look()

    assert "no longer fires" in action["state"]
    assert trainer.poll() is None


def test_a_run_that_the_wrapper_did_not_start_is_refused_and_said_to_be_so(around: Around) -> None:
    trainer = around.train("tee", wrapped=False)
    around.fire("tee")
    action = around.wait_closed("tee", "refused")

    assert "not started by `stepwatch run`" in around.wait_message("ActionTaken", "tee")["description"]
    assert action["target"] == ""
    assert trainer.poll() is None


def test_a_trainer_that_ignores_sigterm_is_killed_only_if_configured(around: Around) -> None:
    deaf, killed = around.train("deaf", "deaf"), around.train("killed", "deaf")
    around.fire("deaf")
    around.fire("killed")
    killed.wait()
    for name in ("deaf", "killed"):
        around.wait_closed(name, "done")

    assert deaf.poll() is None
    assert around.launch("killed").signal == "SIGKILL"


def test_a_process_group_is_stopped_unless_its_id_was_given_away(around: Around) -> None:
    files = {name: around.folder / f"{name}.pid" for name in PIDS}
    trainers = {name: around.train(name, wrapped=False) for name in PIDS}
    for name, file in files.items():
        file.write_text(f"{trainers[name].pid}\n")
    os.utime(files["given-away"], (1e9, 1e9))  # written long before this process began
    for name in PIDS:
        around.fire(name)
    trainers["group"].wait()
    refused = around.wait_closed("given-away", "refused")

    assert trainers["group"].returncode == -signal.SIGTERM
    assert "older than the process" in refused["state"]
    assert trainers["given-away"].poll() is None


def test_only_alertmanager_may_post_alerts(around: Around) -> None:
    labels = {"alertname": "KLExplosion", "severity": "critical", "run": "forged"}
    posted = {"fingerprint": "f", "labels": labels, "startsAt": "2036-01-01T00:00:00Z", "status": "firing"}
    body = json.dumps({"alerts": [posted]}).encode()
    password = around.state.internal_password.read_text().strip()
    wrong, right = (
        f"Basic {b64encode(f'internal:{word}'.encode()).decode()}" for word in ("guess", password)
    )

    def watched() -> str:
        (found,) = re.findall(
            r"^stepwatch_actions_watched_alerts (\S+)$", around.ask("/metrics")[1], re.MULTILINE
        )
        return str(found)

    before = watched()
    assert around.ask("/api/v1/alerts", "POST", body)[0] == 401
    assert around.ask("/api/v1/alerts", "POST", body, Authorization=wrong)[0] == 401
    assert around.ask("/api/v1/alerts", "POST", b"{}", Authorization=right)[0] == 400
    assert watched() == before
    assert around.ask("/api/v1/alerts", "POST", body, Authorization=right)[0] == 200
    assert watched() != before
    assert password not in around.actions.log.read_text()


def test_what_a_name_holds_is_shown_as_text(around: Around) -> None:
    around.train("<b>&a")
    around.fire("<b>&a")
    action = around.wait_pending("<b>&a")

    page = around.ask("/")[1] + around.ask(f"/action/{action['id']}")[1]
    assert "&lt;b&gt;&amp;a" in page
    assert "<b>" not in page


def test_its_metrics_are_those_that_are_documented(around: Around) -> None:
    shown, documented = shown_and_documented(around.ask("/metrics")[1], "The circuit breaker")
    assert shown == documented


@pytest.mark.parametrize("flag", ["--rules=[{}]", "--veto=-1", "--targets=x"])
def test_wrong_options_are_refused_in_words(tmp_path: Path, flag: str) -> None:
    command = [sys.executable, "-m", "exporter.actions", f"--state-dir={tmp_path}", flag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "Expected" in done.stderr
    assert "Traceback" not in done.stderr
