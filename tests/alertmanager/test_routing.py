"""Who is notified: what amtool says, and what a real Alertmanager delivers."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import generate
from tests.alertmanager.conftest import Render
from tests.alertmanager.route import QUICK, alert, post, reported
from tests.alertmanager.test_routes import receivers
from tests.real import AlertmanagerServer, Tool, WebhookSink, eventually

TO = "webhook: {url: 'http://127.0.0.1:9/a'}"

# Of critical alerts two are there round the clock, each for some; of warnings only one that has hours.
TEAMS = f"""
time_intervals:
- name: office
  time_intervals: [{{times: ['09:00-17:00'], weekdays: ['monday:friday'], location: Asia/Shanghai}}]
receivers:
- {{name: ppo team, {TO}, runs: ['ppo/*', 'grpo-?'], severities: [critical]}}
- {{name: kl, {TO}, topics: [kl, reward], matchers: ['cluster!="test"', 'run=~".+"'], severities: [critical]}}
- {{name: chat, {TO}, topics: [kl], active_time_intervals: [office]}}
"""


@pytest.mark.parametrize(
    ("labels", "gets"),
    [
        ({"alertname": "KLExplosion", "run": "ppo/a", "topic": "kl"}, {"ppo team", "kl", "chat"}),
        ({"alertname": "KLExplosion", "run": "sft", "topic": "kl"}, {"kl", "chat"}),
        ({"alertname": "KLExplosion", "run": "sft", "topic": "kl", "cluster": "test"}, {"ppo team", "chat"}),
        ({"alertname": "GPUFellOffBus", "topic": "gpu", "instance": "a:9411"}, {"ppo team"}),
        ({"alertname": "RewardCollapse", "run": "grpo-1", "topic": "reward"}, {"ppo team", "kl"}),
        ({"alertname": "AlertingBroken", "topic": "stack", "fault": "x"}, {"ppo team"}),
        ({"alertname": "KLHigh", "run": "ppo/a", "severity": "warning", "topic": "kl"}, {"chat"}),
        ({"alertname": "SlowSteps", "run": "ppo/a", "severity": "warning", "topic": "progress"}, {"chat"}),
        ({"alertname": "RunFinished", "run": "ppo/a", "severity": "info", "topic": "progress"}, set()),
        ({"alertname": "Watchdog", "topic": "stack"}, set()),
        ({"alertname": "Mine", "severity": "page"}, set()),
    ],
)
def test_an_alert_goes_to_all_whom_it_fits_or_to_the_first(
    tool: Tool, render: Render, labels: dict[str, str], gets: set[str]
) -> None:
    found = receivers(tool, render(TEAMS), **{"severity": "critical", **labels})
    assert set(found) - {"(none)"} == gets


PAIR = """
receivers:
  - {name: chat.a+b, webhook: {url: "http://127.0.0.1:9/a"}}
  - {name: kl, webhook: {url: "http://127.0.0.1:9/b"}, topics: [kl]}
  - name: mail
    mail: {to: [a@b.example], from: c@d.example, smarthost: "m:25", tls: false}
    severities: [warning]
"""
LOST = {"alertname": "NotificationFailures", "severity": "critical", "topic": "stack"}


@pytest.mark.parametrize(
    ("settings", "about", "gets"),
    [
        # The first one gets what no other fits, and is the one that fails: who takes such alerts comes first.
        (PAIR, {"receiver_name": "chat.a+b", "integration": "webhook"}, {"chat.a+b", "kl"}),
        (PAIR, {"receiver_name": "chatXa+b", "integration": "webhook"}, {"chat.a+b"}),
        (PAIR, {"receiver_name": "kl", "integration": "webhook"}, {"chat.a+b"}),
        (PAIR, {"receiver_name": "mail", "integration": "email"}, {"chat.a+b"}),
        # Alertmanager before 0.27: any of the webhooks may be it.
        (PAIR, {"integration": "webhook"}, {"chat.a+b", "mail"}),
        (PAIR, {"integration": "email"}, {"chat.a+b"}),
        (PAIR, {}, {"chat.a+b"}),
        (f"receivers: [{{name: a, {TO}}}]", {"receiver_name": "a", "integration": "webhook"}, {"a"}),
        (
            f"receivers: [{{name: a, {TO}}}, {{name: b, {TO}, severities: [warning]}}]",
            {"receiver_name": "a", "integration": "webhook"},
            {"a", "b"},
        ),
        (
            f"""
external_labels: {{cluster: x}}
receivers: [{{name: a, {TO}, matchers: ['cluster="x"']}}, {{name: b, {TO}, topics: [kl]}}]
""",
            {"receiver_name": "a", "integration": "webhook", "cluster": "x"},
            {"a", "b"},
        ),
        (
            f"""
alerts: {{NotificationFailures: {{severity: info}}}}
receivers: [{{name: a, {TO}}}, {{name: b, {TO}, severities: [warning]}}]
""",
            {"receiver_name": "a", "integration": "webhook", "severity": "info"},
            set(),
        ),
    ],
)
def test_an_alert_about_a_receiver_that_fails_goes_to_another_one_too(
    tool: Tool, render: Render, settings: str, about: dict[str, str], gets: set[str]
) -> None:
    folder = render(settings)
    labels = {**LOST, **about}

    taken = receivers(tool, folder, **labels)
    assert set(taken) - {"(none)"} == gets
    assert len(taken) == len(set(taken))


def test_receivers_without_the_bridge_are_notified_that_it_is_down(tool: Tool, render: Render) -> None:
    robot = "feishu: {url_file: slack-url}"
    others = f"{{name: b, {robot}}}, {{name: ops, {TO}, severities: [warning]}}"
    folder = render(f"receivers: [{{name: a, {robot}}}, {others}]")
    down = {"alertname": "BridgeDown", "severity": "critical", "topic": "stack"}

    assert set(receivers(tool, folder, **down)) == {"a", "b", "ops"}
    assert set(receivers(tool, folder, **{**down, "alertname": "ExporterDown"})) == {"a", "b"}


def test_another_receiver_is_notified_of_failing_announcements_too(tool: Tool, render: Render) -> None:
    policy = "actions: {policies: [{on: KLExplosion, do: [notify]}]}"
    folder = render(f"{policy}\nreceivers: [{{name: a, {TO}}}, {{name: b, {TO}, topics: [kl]}}]")

    for name in ("a", "(actions) a"):
        assert set(receivers(tool, folder, **LOST, receiver_name=name)) == {"a", "b"}, name


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        (f"- {{name: a, {TO}}}", None),
        (f"- {{name: a, {TO}, runs: [x]}}", None),  # gets what fits no one
        (f"- {{name: a, {TO}, severities: [warning]}}", "no receiver takes critical alerts"),
        (
            f"- {{name: a, {TO}, when: {{times: ['09:00-17:00']}}}}",
            "critical alerts reach no one outside the hours of a",
        ),
        (
            (
                f"- {{name: a, {TO}, active_time_intervals: [office]}}\n"
                f"- {{name: b, {TO}, mute_time_intervals: [office]}}"
            ),
            None,
        ),
    ],
)
def test_criticals_that_could_reach_no_one_cause_a_warning(
    tmp_path: Path, text: str, gap: str | None
) -> None:
    office = "time_intervals: [{name: office, time_intervals: [{weekdays: ['monday:friday']}]}]\n"
    (tmp_path / "config.yaml").write_text(f"{office}receivers:\n{text}\n")

    outcome = generate(tmp_path / "config.yaml", tmp_path / "out", place=OnThisMachine)

    warning = outcome.warning or ""
    assert ("Warning: receivers" in warning) == bool(gap)
    assert (gap or "") in warning


@pytest.mark.e2e
def test_a_real_alertmanager_delivers_within_hours_and_not_outside(version: str, render: Render) -> None:
    now = datetime.now(timezone.utc)
    conditions = {
        "team": "runs: ['ppo/*']",
        "kl": "topics: [kl]",
        "day": "when: {times: ['00:00-24:00'], location: Asia/Shanghai}",
        "past": f"when: {{weekdays: [{now + timedelta(days=3):%A}]}}".lower(),
        "muted": "mute_time_intervals: [always]",
    }
    sent = [
        alert("KLExplosion", "ppo/a", topic="kl"),
        alert("LengthCollapse", "sft", topic="length"),
        alert("KLHigh", "强化/七", "warning", topic="kl"),
    ]
    with ExitStack() as stack:
        sinks = {name: stack.enter_context(WebhookSink()) for name in conditions}
        entries = [
            f"- {{name: {name}, webhook: {{url: '{sinks[name].url}'}}, {words}}}"
            for name, words in conditions.items()
        ]
        always = "time_intervals: [{name: always, time_intervals: [{times: ['00:00-24:00']}]}]"
        folder = render("\n".join([always, "receivers:", *entries, QUICK]))
        kl, length, warned = ((each["alertname"], each["run"]) for each in sent)
        wanted = {
            "team": {kl, length},  # the second one fits no receiver that is always there
            "kl": {kl, warned},
            "day": {kl, length, warned},
            "past": set(),
            "muted": set(),
        }
        server = stack.enter_context(AlertmanagerServer(version, folder))
        post(server, *sent)
        eventually(lambda: {name: reported(sink) for name, sink in sinks.items()} == wanted)
