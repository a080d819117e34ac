"""Who gets which alert, as amtool reads the rendered routes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import Place, containers
from stepwatch.schema.errors import ConfigError
from tests.alertmanager.conftest import Render
from tests.real import Tool, alertmanager
from tests.rules import proofs

TWO_RECEIVERS = """
receivers:
  - {name: oncall, webhook: {url: 'http://127.0.0.1:9/a', credentials_file: token}, severities: [critical]}
  - {name: team chat, webhook: {url: 'http://127.0.0.1:9/b'}, send_resolved: false}
"""
EVERY_KIND = """
receivers:
  - {name: ops, webhook: {url: 'http://127.0.0.1:9/a', credentials_file: token}}
  - name: team
    mail: {to: [a@b.example, c@d.example], from: e@f.example, smarthost: 'mail.example:587',
           username: me, password_file: token}
  - name: chat room
    slack: {url_file: chat-url, channel: "#rl"}
    severities: [critical]
    send_resolved: false
"""
NO_RECEIVER = "(none)"


def amtool(tool: Tool, *words: str | Path) -> str:
    done = subprocess.run([tool.tool, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def receivers(tool: Tool, folder: Path, **labels: str) -> list[str]:
    """The receivers of an alert, in the order in which they are notified."""
    pairs = [f"{name}={value}" for name, value in labels.items()]
    said = amtool(tool, "config", "routes", "test", f"--config.file={folder}/alertmanager.yml", *pairs)
    return said.splitlines()[-1].split(",")


def read(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((folder / "alertmanager.yml").read_text())
    return document


@pytest.mark.parametrize(
    "config", ["", TWO_RECEIVERS, EVERY_KIND], ids=["no receiver", "two receivers", "every kind"]
)
def test_both_versions_accept_the_configuration_and_find_the_templates(
    tool: Tool, render: Render, config: str
) -> None:
    assert "1 templates" in amtool(tool, "check-config", render(config) / "alertmanager.yml")


def test_every_rule_of_ours_goes_to_the_receivers_of_its_severity(tool: Tool, render: Render) -> None:
    folder = render(TWO_RECEIVERS)
    wanted = {"critical": ["oncall", "team chat"], "warning": ["team chat"], "info": [NO_RECEIVER]}

    for rule in proofs.rules().values():
        labels = {"alertname": rule["alert"], **rule["labels"]}
        assert receivers(tool, folder, **labels) == wanted[labels["severity"]], labels
        assert receivers(tool, folder, **{**labels, "severity": "info"}) == [NO_RECEIVER], labels


def test_routes_have_the_timing_of_their_severity(render: Render) -> None:
    folder = render(
        TWO_RECEIVERS + "notify: {critical: {group_wait: 3s, group_interval: 20s, repeat_interval: 1h},"
        " warning: {group_wait: 30s, group_interval: 2m, repeat_interval: 18h}}"
    )

    routes = [route for route in read(folder)["route"]["routes"] if "repeat_interval" in route]
    timing = {
        (route["receiver"], route["matchers"][0]): tuple(
            route[key] for key in ("group_wait", "group_interval", "repeat_interval")
        )
        for route in routes
    }
    assert timing == {
        ("oncall", 'severity="critical"'): ("3s", "20s", "1h"),
        ("team chat", 'severity="critical"'): ("3s", "20s", "1h"),
        ("team chat", 'severity="warning"'): ("30s", "2m", "18h"),
    }


def test_a_test_alert_is_sent_to_its_receiver_alone_and_at_once(tool: Tool, render: Render) -> None:
    folder = render(EVERY_KIND)

    for name in ("ops", "team", "chat room"):
        for severity in ("critical", "info"):
            test = {"alertname": "TestAlert", "receiver": name, "severity": severity, "test": "1"}
            assert receivers(tool, folder, **test) == [f"(test) {name}"]
    assert receivers(tool, folder, alertname="TestAlert", receiver="gone", severity="info") == [NO_RECEIVER]
    assert receivers(tool, folder, alertname="KLHigh", receiver="ops", severity="info") == [NO_RECEIVER]
    route = next(route for route in read(folder)["route"]["routes"] if route["receiver"] == "(test) ops")
    assert (route["group_by"], route["group_wait"]) == (["..."], "0s")


def test_a_test_goes_the_way_of_its_receiver_and_its_end_is_not_reported(render: Render) -> None:
    ways = {each["name"]: each for each in read(render(EVERY_KIND))["receivers"]}

    for name in ("ops", "team", "chat room"):
        [(kind, [way])] = [(kind, way) for kind, way in ways[name].items() if kind != "name"]
        assert ways[f"(test) {name}"][kind] == [{**way, "send_resolved": False}]
    assert ways["team"]["email_configs"][0]["send_resolved"] is True
    assert ways["chat room"]["slack_configs"][0]["send_resolved"] is False


def test_a_secret_is_named_by_its_path_and_never_written(render: Render) -> None:
    folder = render(EVERY_KIND, whole=True)

    oncall = read(folder)["receivers"][1]["webhook_configs"][0]
    path = Path(oncall["http_config"]["authorization"]["credentials_file"])
    assert path.is_absolute()
    assert path.read_text() == "s3cret-token\n"
    assert not [
        file for file in folder.parent.parent.rglob("generated/**/*.*") if "s3cret" in file.read_text()
    ]


@pytest.mark.parametrize(
    ("place", "variables"),
    [
        pytest.param(OnThisMachine, ["STEPWATCH_ALERTMANAGER"], id="server"),
        pytest.param(OnThisMachine, ["STEPWATCH_ALERTMANAGER", "STEPWATCH_AMTOOL"], id="server-and-amtool"),
        pytest.param(containers, ["STEPWATCH_AMTOOL"], id="amtool-beside-containers"),
    ],
)
def test_a_url_file_that_alertmanager_is_too_old_for_is_refused_by_line_with_the_fix(
    place: Place,
    variables: list[str],
    render: Render,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = alertmanager("0.25"), alertmanager("0.31")
    for variable, attribute in (("STEPWATCH_ALERTMANAGER", "server"), ("STEPWATCH_AMTOOL", "tool")):
        monkeypatch.setenv(variable, str(getattr(old if variable in variables else new, attribute)))
    path = old.server if "STEPWATCH_ALERTMANAGER" in variables else old.tool
    title = "Alertmanager" if "STEPWATCH_ALERTMANAGER" in variables else "amtool"

    with pytest.raises(ConfigError) as refusal:
        render("receivers:\n- name: chat\n  webhook:\n    url_file: chat-url\n", place=place, whole=True)

    _, _, said = str(refusal.value).partition("/config.yaml")
    assert said == (
        f":4: receivers[0].webhook.url_file: needs {title} 0.26 or later ({path} is 0.25.0). "
        "Expected: url and credentials_file for this version, or a later one. "
        f"Fix: install {title} 0.26 or later; or take {path} off PATH and unset {variables[0]}: "
        f"{'containers bring' if place is containers else '`make up` downloads'} Alertmanager {new.version}."
    )


def test_a_secret_address_is_read_from_its_file_where_alertmanager_can(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = alertmanager("0.31")  # 0.25 knows no url_file
    monkeypatch.setenv("STEPWATCH_ALERTMANAGER", str(newest.server))
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(newest.tool))
    folder = render("receivers: [{name: chat, webhook: {url_file: chat-url}}]")

    amtool(newest, "check-config", folder / "alertmanager.yml")
    address = Path(read(folder)["receivers"][1]["webhook_configs"][0]["url_file"])
    assert address.name == "chat-url"
    assert address.is_absolute()
