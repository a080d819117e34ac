"""The lines about runs, receivers and alerts, from small servers in place of the real parts."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stepwatch.deploy import compose, engine
from stepwatch.deploy.native.state import State
from stepwatch.schema.errors import Refused
from stepwatch.services.health_report import HealthReport, firing
from stepwatch.services.lifecycle import folder_remark, make_folder
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.real import free_port

LOOKED = "stepwatch_last_poll_timestamp_seconds 1760000000.0\n"
UNREADABLE = 'stepwatch_files{{kind="unreadable"}} {}.0\n'
RUNS = 'stepwatch_runs{state="running"} 2.0\nstepwatch_runs{state="failed"} 0.0\n'

Serve = Callable[[dict[str, Any]], str]


@pytest.fixture(name="serve")
def _serve() -> Iterator[Serve]:
    """Serves pages by their paths; of several texts each once, the last one from then on."""
    servers: list[ThreadingHTTPServer] = []

    def serve(pages: dict[str, Any]) -> str:
        turns = {
            path: itertools.chain(texts[:-1], itertools.repeat(texts[-1])) for path, texts in pages.items()
        }

        class Pages(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = turns.get(self.path.partition("?")[0])
                self.send_response(200 if known else 404)
                self.end_headers()
                self.wfile.write(next(known).encode() if known else b"")

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Pages))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def alertmanager(serve: Serve, *receivers: str, uptime: float = 3600) -> str:
    alert = {
        "labels": {"alertname": "KLExplosion", "run": "ppo", "severity": "critical"},
        "annotations": {"description": "KL 1.6.", "action": "stop the run"},
        "startsAt": "2026-01-01T03:12:00Z",
        "fingerprint": "a",
        "status": {"state": "active", "inhibitedBy": [], "silencedBy": []},
    }
    names = [{"name": name} for name in receivers]
    metrics = f"process_start_time_seconds {time.time() - uptime}\n"
    reported = {
        "/api/v2/receivers": json.dumps(names),
        "/api/v2/alerts": json.dumps([alert]),
        "/metrics": metrics,
    }
    return serve({page: [text] for page, text in reported.items()})


def lines(exporter: str = "", alertmanager: str = "") -> list[str]:
    said: list[str] = []
    well(HealthReport(exporter, alertmanager, "the runs in /x", "/logs/exporter.log"), said.append)
    return said


def well(report: HealthReport, say: Callable[[str], object] = print) -> bool:
    return report.show(http_client.read_all(report.pages), say)


def reported(exporter: str) -> str:
    said: list[str] = []
    HealthReport(exporter, "", "the runs in /x", "/logs/exporter.log").show_after_start(said.append)
    return "\n".join(said)


def test_runs_receivers_and_alerts_are_reported(serve: Serve) -> None:
    said = lines(serve({"/metrics": [RUNS + UNREADABLE.format(0)]}), alertmanager(serve, "(test)", "chat"))

    assert said[:2] == ["\nThe runs in /x: 2 running.", "Receivers: chat."]
    assert said[2].startswith("\nFiring:\n  critical  KLExplosion  ppo  fired at ")
    assert said[2].endswith(": KL 1.6.\n    First: stop the run.")
    assert len(said) == 3


def test_an_inhibited_alert_follows_what_inhibits_it_and_names_what_inhibits_it() -> None:
    def alert(name: str, severity: str, *inhibiting: str) -> dict[str, object]:
        return {
            "labels": {"alertname": name, "run": "ppo", "severity": severity},
            "annotations": {"description": "."},
            "startsAt": "2026-01-01T03:12:00Z",
            "fingerprint": f"of {name}",
            "status": {"inhibitedBy": [f"of {each}" for each in inhibiting], "silencedBy": []},
        }

    alerts = [
        alert("Unrelated", "info"),
        alert("RewardCollapse", "critical", "RunStopped"),
        alert("RunStopped", "warning"),
    ]

    stopped, collapsed, _ = firing(json.dumps(alerts), None)

    assert stopped.startswith("warning  RunStopped  ppo  fired at ")
    assert collapsed.startswith("critical  RewardCollapse  ppo  fired at ")
    assert collapsed.endswith(" (muted by RunStopped): .")


def test_an_alert_of_a_run_that_is_over_says_so(serve: Serve) -> None:
    names = [("KLExplosion", "a"), ("RunFailed", "a"), ("KLHigh", 'b"\\'), ("KLHigh", "c")]
    alerts = [
        {
            "labels": {"alertname": name, "severity": "warning", "run": run},
            "annotations": {"description": f"{name} of {run}", "action": f"act on {name} of {run}"},
            "startsAt": "2026-11-21T01:00:00Z",
            "fingerprint": f"{name}{run}",
            "status": {"inhibitedBy": [], "silencedBy": []},
        }
        for name, run in names
    ]
    states = [("a", "failed", 1), ("a", "running", 0), ('b\\"\\\\', "vanished", 1), ("c", "running", 1)]
    page = "".join(f'rl_run_state{{run="{run}",state="{state}"}} {on}.0\n' for run, state, on in states)
    page += 'rl_reward{run="c",state="x"} 1.0\n'
    served = {"/api/v2/receivers": ["[]"], "/api/v2/alerts": [json.dumps(alerts)], "/metrics": [""]}
    firing_ = lines(serve({"/metrics": [page]}), serve(served))[-1]

    found = {line.partition(": ")[2]: line for line in firing_.splitlines() if "warning" in line}
    assert "the run has ended (failed)" in found["KLExplosion of a"]
    assert "the run has ended (vanished)" in found['KLHigh of b"\\']
    assert "is over" not in found["RunFailed of a"] + found["KLHigh of c"]
    acts = [line.strip() for line in firing_.splitlines() if "First:" in line]
    assert sorted(acts) == ["First: act on KLHigh of c.", "First: act on RunFailed of a."]


def test_without_runs_and_receivers_it_says_so(serve: Serve) -> None:
    said = lines(serve({"/metrics": [LOOKED]}), alertmanager(serve))

    assert said[:2] == ["\nThe runs in /x: none yet.", "Receivers: none, so alerts are sent to no one."]


def test_parts_that_do_not_answer_are_not_taken_for_empty_ones() -> None:
    nobody = f"127.0.0.1:{free_port()}"

    assert lines(nobody, nobody) == [
        "\nThe runs in /x: unknown, because the exporter does not answer.",
        "Receivers: unknown, because Alertmanager does not answer.",
        "Firing: unknown, because Alertmanager does not answer. Prometheus and the light page show it.",
    ]


def test_an_alertmanager_that_has_just_started_is_not_taken_to_have_all_alerts(serve: Serve) -> None:
    young, old = (lines(alertmanager=alertmanager(serve, uptime=uptime)) for uptime in (20, 70))

    assert young[1].startswith("Alertmanager started 20 s ago. ")
    assert young[2:] == old[1:]


def test_what_keeps_the_stack_from_alerting_is_reported_and_is_not_well(serve: Serve) -> None:
    def checking(*texts: str) -> str:
        return serve({"/metrics": [RUNS + CHECKS], "/api/v1/findings": list(texts)})

    sick, fine = checking(findings(4, FULL)), checking(findings(4))
    assert lines(sick)[1:] == [
        "\nAlerting is broken (checked 4 s ago):\n  State disk is full. /data: 0 B free."
    ]
    assert lines(fine)[1:] == []
    agent, nobody = serve({"/metrics": [RUNS]}), f"127.0.0.1:{free_port()}"
    known = {each: well(HealthReport(each, "", "", "")) for each in (sick, fine, agent, nobody)}
    assert known == {sick: False, fine: True, agent: True, nobody: False}


CHECKS = "stepwatch_alerting_last_check_timestamp_seconds 1760000000.0\n"
FULL = {"summary": "State disk is full", "description": "/data: 0 B free."}


def findings(age: float, *found: dict[str, str]) -> str:
    """The exporter's page, as of so many seconds ago."""
    return json.dumps({"checked": time.time() - age, "findings": found})


def test_after_up_a_finding_from_before_the_parts_were_ready_is_looked_for_again(serve: Serve) -> None:
    old, over, lasting = findings(4, FULL), findings(-60), findings(-60, FULL)

    def after_up(*texts: str) -> str:
        page = LOOKED + UNREADABLE.format(0) + CHECKS
        return reported(serve({"/metrics": [page], "/api/v1/findings": list(texts)}))

    healed = after_up(old, old, over)
    assert "Alerting is broken" not in healed
    assert healed.endswith("\nThe fault is over.")
    assert "Alerting is broken" in after_up(old, lasting)
    assert after_up(over) == ""


SENT = "stepwatch_hub_last_write_timestamp_seconds 1760000000.0\n"


def sent(checked: float, taken: float, *faults: str) -> str:
    """The page of an agent's exporter: the hub answered, and took samples, so many seconds ago."""
    now = time.time()
    taken = now - taken if taken else 0
    return json.dumps({"checked": now - checked, "hub": "https://hub:9415", "taken": taken, "faults": faults})


def test_an_agent_says_whether_its_hub_takes_the_samples(serve: Serve) -> None:
    page = LOOKED + UNREADABLE.format(0) + SENT

    def agent(*texts: str) -> str:
        return serve({"/metrics": [page], "/api/v1/findings": list(texts)})

    for findings_page, says, sound in (
        (sent(1, 3), "The hub https://hub:9415 accepts its samples (last 3 s ago).", True),
        (sent(1, 0), "The hub https://hub:9415 accepts its samples (nothing was sent yet).", True),
        (sent(1, 7200, "It takes none: why. Fix: this."), "It takes none: why. Fix: this.", False),
    ):
        address = agent(findings_page)
        assert says in "\n".join(lines(address))
        assert well(HealthReport(address, "", "", "")) is sound
    # After `up` what was found before is not said: a password may have been corrected.
    assert reported(agent(sent(5, 5, "old"), sent(5, 5, "old"), sent(-60, 1))).strip().startswith("The hub ")
    assert reported(agent(sent(-60, 0, "lasting"))).strip() == "lasting"


def test_after_up_the_first_look_of_the_exporter_is_waited_for(serve: Serve) -> None:
    early = LOOKED.replace("1760000000.0", "0.0") + UNREADABLE.format(0)

    assert "2 files or folders" in reported(
        serve({"/metrics": [early, early, LOOKED + UNREADABLE.format(2)]})
    )
    assert reported(serve({"/metrics": [early, LOOKED + UNREADABLE.format(0)]})) == ""


def test_in_containers_the_run_folder_is_what_is_mounted(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = serve({"/metrics": [RUNS + UNREADABLE.format(1)]})
    mounts = {"/state": "/var/lib/x", "/runs": "/data/my runs"}
    found = [{"Source": source, "Destination": place} for place, source in mounts.items()]
    service = engine.Service("exporter", "running", "", 0, "Up", {9410: exporter}, {"Mounts": found})

    class Project:
        def services(self) -> list[engine.Service]:
            return [service]

    said: list[str] = []
    monkeypatch.setattr(compose.Containers, "_project", Project())
    compose.Containers(CHECKOUT / "config.yaml", State(tmp_path), said.append).status()
    words = "\n".join(said)

    assert "The runs in /data/my runs: 2 running." in words
    assert "1 files or folders" in words
    assert "`docker compose logs exporter` (where /runs is /data/my runs) names them" in words


def test_a_missing_run_folder_is_made_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    assert make_folder(folder)
    assert folder.is_dir()
    assert not make_folder(folder)
    assert not make_folder(tmp_path / "*/logs")

    assert folder_remark(made=True, remembered=True) == (
        ", which did not exist and was created empty. To read another folder: `make up RUNS=folder`"
    )
    assert "set by the last `make up RUNS=folder`" in folder_remark(made=False, remembered=True)
    assert folder_remark(made=False, remembered=False) == ""


def test_a_run_folder_that_cannot_be_made_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Refused, match=r"runs\.path: .*/file/runs: Not a directory\. .*make up RUNS=folder"):
        make_folder(tmp_path / "file/runs")


LEFT_OUT = (
    'stepwatch_files{kind="left_out"} 7.0\n'
    'stepwatch_left_out_runs{state="running"} 3.0\nstepwatch_left_out_runs{state="ended"} 2.0\n'
)
MISSING = r'rl_run_signal_missing_info{{run="qwen \"b\"",signal="{}",reason="{}",setting="{}"}} 1.0' + "\n"
TARGET = 'stepwatch_target_up{{name="{}",source="{}"}} {}\n'


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (UNREADABLE.format(3), ["3 files or folders", "/logs/exporter.log names them", "`chmod g+r`"]),
        (
            'stepwatch_mount_hung_since_timestamp_seconds{mount="/data/a b"} NOW\n',
            ["/data/a b has not answered for 1m 5s: ", "Fix: repair the file server, or unmount the folder."],
        ),
        (
            LEFT_OUT,
            ["7 files are not read: ", "Fix: name the folder or glob", "3 live runs are not watched: "],
        ),
        (LEFT_OUT, ["Fix: start another Stepwatch", "2 ended runs are not shown: "]),
        (
            MISSING.format("reward", "unknown", r"reward: [\"env/points\"]"),
            [
                'qwen "b" has no known key of reward. ',
                'in config.yaml, such as reward: ["env/points"]; `make inspect RUNS=log`',
            ],
        ),
        (MISSING.format("kl", "lost", ""), ['qwen "b" no longer logs kl, which it had in every step. ']),
        (
            TARGET.format("http://10.0.0.8:5000", "mlflow", 0.0),
            ["http://10.0.0.8:5000 returned no readable answer; /logs/exporter.log says why."],
        ),
    ],
)
def test_what_is_not_read_or_judged_is_counted_with_the_fix(serve: Serve, page: str, says: list[str]) -> None:
    said = "\n".join(lines(serve({"/metrics": [RUNS + page.replace("NOW", str(time.time() - 65))]})))

    assert all(words in said for words in says), said
    up, registered = TARGET.format("up", "mlflow", 1.0), TARGET.format("registered", "rl_insight", 0.0)
    fine = re.sub(r" \d\.0", " 0.0", LEFT_OUT) + up + registered
    assert len(lines(serve({"/metrics": [RUNS + fine]}))) == 1
