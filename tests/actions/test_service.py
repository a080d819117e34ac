"""The service as a process, with a real Alertmanager and real trainers: it does what was configured, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from base64 import b64encode
from pathlib import Path

import pytest

from tests.actions.stack import EXPLOSION, Around
from tests.alertmanager.route import post
from tests.real.waiting import eventually

EVENTS = ["opened", "intent", "result", "announced", "intent", "result", "closed"]


def test_a_run_is_stopped_once_after_evidence_and_an_announcement(tmp_path: Path) -> None:
    policy = {**EXPLOSION, "do": ["evidence", "notify", "stop"]}
    with Around(tmp_path, policies=[policy], cooldown="0s").up() as around:
        trainer = around.train()
        other = around.train("b")
        labels = around.fire()
        around.sink.wait_for(lambda message: message.alerts[0]["labels"]["alertname"] == "ActionPending")
        (pending,) = around.messages("ActionPending")
        action = around.wait_closed("done")
        trainer.wait()
        eventually(lambda: around.messages("ActionTaken"), seen=around.log)

        assert pending["annotations"]["summary"] == "Run will be stopped unless you veto"
        assert f"Veto: {around.url}/action/{action['id']}" in pending["annotations"]["description"]
        assert around.launch().cause == f"stopped by stepwatch: KLExplosion ({action['id']})"
        assert [event for event, _ in around.audit()] == EVENTS
        archive = Path(action["results"]["evidence"]["text"])
        assert archive.is_file(), archive
        (taken,) = around.messages("ActionTaken")
        assert taken["annotations"]["summary"] == "Run was stopped"

        post(around.alertmanager, labels)
        around.actions.kill()
        around.actions.start()
        post(around.alertmanager, labels)
        time.sleep(3)
        assert [event for event, _ in around.audit()][:7] == EVENTS
        assert ("intent", "stop") not in around.audit()[7:]
        assert other.poll() is None


def test_a_dry_run_announces_and_stops_nothing(tmp_path: Path) -> None:
    with Around(tmp_path, dry_run=True).up() as around:
        trainer = around.train()
        around.fire()
        action = around.wait_closed("done")
        eventually(lambda: around.messages("ActionTaken"), seen=around.log)

        assert action["results"]["stop"]["text"] == "dry run: not done"
        for name in ("ActionPending", "ActionTaken"):
            assert [each["annotations"]["summary"] for each in around.messages(name)] == [
                "Dry run: this run would be stopped"
            ]
        assert trainer.poll() is None
        assert around.launch().ended is None


def test_a_veto_by_the_link_s_page_or_the_command_keeps_the_run_and_a_link_that_is_followed_does_not(
    tmp_path: Path,
) -> None:
    with Around(tmp_path, veto="3s", cooldown="0s").up() as around:
        runs = {name: around.train(name) for name in ("a", "b")}
        for name in runs:
            around.fire(name)
        eventually(lambda: sum(bool(each["deadline"]) for each in around.known()) == 2, seen=around.log)
        by_run = {each["run"]: each["id"] for each in around.known()}
        status, page = around.ask(f"/action/{by_run['a']}")
        assert (status, '<form method="post"' in page) == (200, True)
        assert around.ask(f"/veto/{by_run['a']}")[0] == 405
        assert around.ask(f"/veto/{by_run['a']}", "POST", Origin="http://evil.example")[0] == 403
        assert {each["outcome"] for each in around.known()} == {""}

        assert around.ask(f"/veto/{by_run['a']}", "POST")[0] == 200
        vetoed = around.command("--veto", by_run["b"])
        assert (vetoed.returncode, vetoed.stdout[:7]) == (0, "Vetoed "), vetoed.stderr
        time.sleep(4)
        assert {each["outcome"] for each in around.known()} == {"vetoed"}
        assert [each.poll() for each in runs.values()] == [None, None]
        again = around.command("--veto", by_run["b"])
        assert (again.returncode, "Too late" in again.stderr) == (2, True)
        shown = around.command()
        assert "vetoed: a person vetoed it" in shown.stdout


def test_the_kill_switch_ends_what_is_announced(tmp_path: Path) -> None:
    with Around(tmp_path, veto="4s").up() as around:
        trainer = around.train()
        around.fire()
        around.wait_pending()
        assert around.command("--kill-switch", "on").returncode == 0
        action = around.wait_closed("dropped")
        time.sleep(5)

        assert "the kill switch is on" in action["state"]
        assert trainer.poll() is None
        assert "The kill switch is on" in around.command().stdout
        assert around.command("--kill-switch", "off").returncode == 0
        assert not (around.data / "off").exists()


def test_a_service_killed_between_intent_and_result_reports_that_and_repeats_nothing(tmp_path: Path) -> None:
    with Around(tmp_path).up() as around:
        trainer = around.train()
        around.fire()
        around.wait_pending()
        os.kill(trainer.pid, signal.SIGSTOP)  # the wrapper does not answer
        eventually(lambda: ("intent", "stop") in around.audit(), seen=around.log)
        around.actions.kill()
        around.actions.start()
        action = around.wait_closed("interrupted")
        os.kill(trainer.pid, signal.SIGCONT)
        trainer.wait()
        time.sleep(2)

        assert "may have been done" in action["state"]
        assert [each for each in around.audit() if each[0] == "intent"] == [("intent", "stop")]
        eventually(lambda: around.messages("ActionTaken"), seen=around.log)
        assert around.launch().stopped


def test_an_alert_that_is_older_than_the_service_causes_nothing(tmp_path: Path) -> None:
    with Around(tmp_path).up(acting=False) as around:
        trainer = around.train()
        around.fire()
        time.sleep(1)
        around.actions.start()
        eventually(lambda: ("ignored", "older") in around.audit(), seen=around.log)
        time.sleep(3)

        assert trainer.poll() is None
        assert around.known() == []


def test_another_attempt_of_the_run_is_left_alone(tmp_path: Path) -> None:
    with Around(tmp_path, veto="6s").up() as around:
        first = around.train()
        around.fire()
        around.wait_pending()
        first.terminate()
        first.wait()
        second = around.train()
        action = around.wait_closed("dropped")
        time.sleep(2)

        assert "started again" in action["state"]
        assert (around.launch().attempt, second.poll()) == (2, None)


def test_an_alert_whose_condition_is_over_stops_nothing_while_it_lingers(tmp_path: Path) -> None:
    with Around(tmp_path, veto="3s").up() as around:
        trainer = around.train()
        labels = around.fire()
        around.wait_pending()
        around.prometheus.firing, around.prometheus.lingering = [], [labels]
        action = around.wait_closed("dropped")
        time.sleep(3)

        assert "does not hold any more" in action["state"]
        assert trainer.poll() is None


def test_a_run_that_the_wrapper_did_not_start_is_refused_and_said_to_be_so(tmp_path: Path) -> None:
    with Around(tmp_path).up() as around:
        trainer = around.train(wrapped=False)
        around.fire()
        action = around.wait_closed("refused")
        eventually(lambda: around.messages("ActionTaken"), seen=around.log)

        assert (
            "not started by `stepwatch run`"
            in around.messages("ActionTaken")[0]["annotations"]["description"]
        )
        assert action["target"] == ""
        assert trainer.poll() is None


def test_a_trainer_that_ignores_sigterm_is_killed_only_if_configured(tmp_path: Path) -> None:
    policies = [{**EXPLOSION, "runs": "b", "kill_after": "1s"}, EXPLOSION]
    with Around(tmp_path, policies=policies).up() as around:
        deaf, killed = around.train("a", "deaf"), around.train("b", "deaf")
        around.fire("a")
        around.fire("b")
        killed.wait()
        eventually(lambda: sum(each["outcome"] == "done" for each in around.known()) == 2, seen=around.log)

        assert deaf.poll() is None
        assert around.launch("b").signal == "SIGKILL"


def test_a_process_group_that_config_yaml_names_is_stopped_unless_its_id_was_given_away(
    tmp_path: Path,
) -> None:
    files = {name: tmp_path / f"{name}.pid" for name in ("a", "b")}
    targets = [{"runs": name, "pid_file": str(file)} for name, file in files.items()]
    with Around(tmp_path, targets=targets).up() as around:
        trainers = {name: around.train(name, wrapped=False) for name in files}
        for name, file in files.items():
            file.write_text(f"{trainers[name].pid}\n")
        os.utime(files["b"], (1e9, 1e9))  # written long before this process began
        for name in files:
            around.fire(name)
        trainers["a"].wait()
        refused = around.wait_closed("refused")

        assert trainers["a"].returncode == -signal.SIGTERM
        assert (refused["run"], "older than the process" in refused["state"]) == ("b", True)
        assert trainers["b"].poll() is None


def test_only_alertmanager_may_post_alerts(tmp_path: Path) -> None:
    with Around(tmp_path).up() as around:
        trainer = around.train()
        labels = around.fire.__func__ and {"alertname": "KLExplosion", "severity": "critical", "run": "a"}
        body = json.dumps(
            {
                "alerts": [
                    {
                        "fingerprint": "f",
                        "labels": labels,
                        "startsAt": "2036-01-01T00:00:00Z",
                        "status": "firing",
                    }
                ]
            }
        ).encode()
        wrong = f"Basic {b64encode(b'stepwatch:guess').decode()}"
        assert around.ask("/api/v1/alerts", "POST", body)[0] == 401
        assert around.ask("/api/v1/alerts", "POST", body, Authorization=wrong)[0] == 401
        password = around.state.backend_password.read_text().strip()
        right = f"Basic {b64encode(f'stepwatch:{password}'.encode()).decode()}"
        assert around.ask("/api/v1/alerts", "POST", b"{}", Authorization=right)[0] == 400
        status, said = around.ask("/metrics")
        assert (status, "stepwatch_actions_watched_alerts 0.0" in said) == (200, True)
        assert around.ask("/api/v1/alerts", "POST", body, Authorization=right)[0] == 200
        assert "stepwatch_actions_watched_alerts 1.0" in around.ask("/metrics")[1]
        assert password not in around.actions.log.read_text()
        assert trainer.poll() is None


def test_what_an_alert_or_a_name_holds_is_shown_as_text(tmp_path: Path) -> None:
    with Around(tmp_path, dry_run=True, veto="100s").up() as around:
        around.train("<b>&a")
        around.fire("<b>&a")
        action = around.wait_pending()

        page = around.ask("/")[1] + around.ask(f"/action/{action['id']}")[1]
        assert "&lt;b&gt;&amp;a" in page
        assert "<b>" not in page


@pytest.mark.parametrize("flag", ["--rules=[{}]", "--veto=-1", "--targets=x"])
def test_wrong_options_are_refused_in_words(tmp_path: Path, flag: str) -> None:
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "exporter.actions", f"--state-dir={tmp_path}", flag],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Expected" in done.stderr
    assert "Traceback" not in done.stderr
