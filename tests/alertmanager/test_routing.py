"""Who is notified: what `route` says, what amtool says, and what a real Alertmanager delivers."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.operate.route import route
from stepwatch.render.generator import generate
from stepwatch.rules import routing
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from tests.alertmanager.conftest import Render
from tests.alertmanager.route import QUICK, alert, post, reported
from tests.alertmanager.test_routes import receivers
from tests.real import AlertmanagerServer, Tool, WebhookSink, eventually, free_port

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
OFFICE, NIGHT = "2026-02-02T10:00+08:00", "2026-02-02T20:00+08:00"

ALERTS = [
    {"alertname": "KLExplosion", "run": "ppo/a", "severity": "critical", "topic": "kl"},
    {"alertname": "KLExplosion", "run": "sft", "severity": "critical", "topic": "kl"},
    {"alertname": "KLExplosion", "run": "sft", "severity": "critical", "topic": "kl", "cluster": "test"},
    {"alertname": "GPUFellOffBus", "severity": "critical", "topic": "gpu", "instance": "a:9411"},
    {"alertname": "RewardCollapse", "run": "grpo-1", "severity": "critical", "topic": "reward"},
    {"alertname": "AlertingBroken", "severity": "critical", "topic": "stack", "fault": "x"},
    {"alertname": "KLHigh", "run": "ppo/a", "severity": "warning", "topic": "kl"},
    {"alertname": "SlowSteps", "run": "ppo/a", "severity": "warning", "topic": "progress"},
    {"alertname": "RunFinished", "run": "ppo/a", "severity": "info", "topic": "progress"},
    {"alertname": "Watchdog", "severity": "critical", "topic": "stack"},
    {"alertname": "Mine", "severity": "page"},
]


def test_route_decides_as_amtool_and_every_severity_we_send_reaches_someone(
    tool: Tool, render: Render
) -> None:
    folder = render(TEAMS)
    config = load(folder.parents[1] / "config.yaml")
    at = datetime.fromisoformat(OFFICE)

    for labels in ALERTS:
        decided, _ = routing.decisions(config, labels, at)
        said = [each.receiver.name for each in decided if each.notified]
        assert sorted(said) == sorted(set(receivers(tool, folder, **labels)) - {"(none)"}), labels
        ours = labels["severity"] in ("critical", "warning") and labels["alertname"] != "Watchdog"
        assert bool(said) == ours, labels


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
    decided, _ = routing.decisions(
        load(folder.parents[1] / "config.yaml"), labels, datetime.now(timezone.utc)
    )
    assert {each.receiver.name for each in decided if each.notified} == gets


def test_receivers_without_the_notifier_are_notified_that_it_is_down(tool: Tool, render: Render) -> None:
    robot = "feishu: {url_file: slack-url}"
    others = f"{{name: b, {robot}}}, {{name: ops, {TO}, severities: [warning]}}"
    folder = render(f"receivers: [{{name: a, {robot}}}, {others}]")
    down = {"alertname": "NotifierDown", "severity": "critical", "topic": "stack"}

    assert set(receivers(tool, folder, **down)) == {"a", "b", "ops"}
    assert set(receivers(tool, folder, **{**down, "alertname": "ExporterDown"})) == {"a", "b"}


def test_another_receiver_is_notified_of_failing_announcements_too(tool: Tool, render: Render) -> None:
    policy = "actions: {policies: [{on: KLExplosion, do: [notify]}]}"
    folder = render(f"{policy}\nreceivers: [{{name: a, {TO}}}, {{name: b, {TO}, topics: [kl]}}]")

    for name in ("a", "(actions) a"):
        assert set(receivers(tool, folder, **LOST, receiver_name=name)) == {"a", "b"}, name


def test_route_says_why_another_one_is_notified(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"ports: {{alertmanager: {free_port()}}}\n{PAIR}")
    code, lines = said(
        tmp_path, "-", "NotificationFailures", labels=["receiver_name=chat.a+b", "integration=webhook"]
    )

    assert code == 0
    assert lines[2].startswith(
        "  kl is notified by webhook (HTTP): the alert is about those that would get it"
    )


def said(folder: Path, *words: str, **asked: str | list[str]) -> tuple[int, list[str]]:
    """Exit status and lines, but for the one that no Alertmanager was asked."""
    lines: list[str] = []
    code = route(folder / "config.yaml", *words, lines.append, **asked)  # type: ignore[arg-type]
    return code, [line for line in lines if not line.startswith(UNASKED)]


UNASKED = "Silences and inhibition were not checked: no Alertmanager answers at "


@pytest.fixture(name="teams")
def _teams(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(f"ports: {{alertmanager: {free_port()}}}\n{TEAMS}")
    return tmp_path


def test_route_says_who_is_notified_and_which_condition_left_the_others_out(teams: Path) -> None:
    code, lines = said(teams, "ppo/a", "KLExplosion", at=NIGHT)

    assert code == 0
    assert lines[0].startswith("KLExplosion (critical) of ppo/a, ")
    assert lines[1:] == [
        "  ppo team is notified by webhook (HTTP): severity, runs fit.",
        "  kl is notified by webhook (HTTP): severity, topics, matchers fit.",
        "  chat is not notified: muted: outside active_time_intervals office.",
    ]


def test_an_alert_that_fits_no_one_goes_to_the_first_who_is_always_there(teams: Path) -> None:
    code, lines = said(teams, "ppo/a", "AlertingBroken", at=OFFICE)

    first = "the first, as no conditions fit (its own: runs: ppo/*, grpo-?, and its run is none)"
    assert code == 0
    assert lines[0].startswith("AlertingBroken (critical) of no run, ")
    assert lines[1:] == [
        f"  ppo team is notified by webhook (HTTP): {first}.",
        '  kl is not notified: topics: kl, reward, and its topic is "stack".',
        '  chat is not notified: topics: kl, and its topic is "stack".',
    ]


def test_route_says_why_no_one_is_notified(teams: Path) -> None:
    code, lines = said(teams, "ppo/a", "KLHigh", at=NIGHT)
    assert (code, lines[-1]) == (1, "No one is notified. The pages show it.")

    code, lines = said(teams, "ppo/a", "RunFinished", severity="info")
    assert code == 1
    assert lines[-1].startswith("No one is notified: an alert of severity info")


@pytest.mark.parametrize(
    ("words", "asked", "says"),
    [
        (("a", "KLExplosoin"), {}, "did you mean KLExplosion?"),
        (("a", "KLHigh"), {"at": "soon"}, "--at soon is not a time. Expected: one such as 2026-02-01T22:30"),
        (("a", "KLHigh"), {"labels": ["x"]}, "--label x is not a label. Expected: name=value."),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    teams: Path, words: tuple[str, str], asked: dict[str, str], says: str
) -> None:
    with pytest.raises(Refused) as refusal:
        said(teams, *words, **asked)
    assert says in str(refusal.value)


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
def test_a_real_alertmanager_delivers_as_route_says_within_hours_and_outside(
    version: str, render: Render
) -> None:
    now = datetime.now(timezone.utc)
    conditions = {
        "team": "runs: ['ppo/*']",
        "kl": "topics: [kl]",
        "day": f"when: {{years: [{now.year - 1}:{now.year + 1}], location: Asia/Shanghai}}",
        "past": f"when: {{years: [{now.year - 3}]}}",
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
        config = load(folder.parents[1] / "config.yaml")
        wanted = {
            name: {
                (labels["alertname"], labels["run"])
                for labels in sent
                for each in routing.decisions(config, labels, now)[0]
                if each.receiver.name == name and each.notified
            }
            for name in sinks
        }
        server = stack.enter_context(AlertmanagerServer(version, folder))
        post(server, *sent)
        eventually(lambda: {name: reported(sink) for name, sink in sinks.items()} == wanted)

    assert wanted["team"] == {("KLExplosion", "ppo/a"), ("LengthCollapse", "sft")}
    assert wanted["past"] == wanted["muted"] == set()
    assert len(wanted["day"]) == len(sent)


@pytest.mark.e2e
def test_route_says_what_the_running_alertmanager_holds_back_and_that_it_did_not_look(
    version: str, render: Render
) -> None:
    port = free_port()
    ports = f"ports: {{alertmanager: {port}}}"
    folder = render(f"{ports}\nexternal_labels: {{cluster: x}}\nreceivers: [{{name: a, {TO}}}]\n{QUICK}")
    root = folder.parents[1]

    lines: list[str] = []
    assert route(root / "config.yaml", "sick", "KLExplosion", lines.append) == 0
    assert lines[-1] == f"{UNASKED}http://127.0.0.1:{port}."
    with AlertmanagerServer(version, folder, port=port) as server:
        assert said(root, "sick", "KLExplosion")[1][1:] == [
            "  a is notified by webhook (HTTP): severity fits."
        ]
        _silence(server.url, "ops", run="quiet.*")
        post(
            server,
            alert("RunFailed", "gone", topic="progress", cluster="x"),
            alert("RunFailed", "elsewhere", topic="progress", cluster="y"),
            alert("KLExplosion", "sick", topic="kl", cluster="x"),
        )
        eventually(lambda: len(said(root, "gone", "KLExplosion")[1]) == 4)

        code, lines = said(root, "gone", "KLExplosion")
        assert (code, lines[1:]) == (
            1,
            [
                "  It is inhibited by RunFailed (critical), which fires now.",
                "  a would be notified by webhook (HTTP): severity fits.",
                "No one is notified while that holds. The pages show it.",
            ],
        )
        code, lines = said(root, "quiet-7", "KLExplosion")
        assert (code, lines[1].startswith("  It is silenced until ")) == (1, True), lines
        assert lines[1].endswith(" by ops: planned.")
        # How it ended is told, another cluster is not this one, and tomorrow neither is known to hold.
        for words in (("gone", "RunFailed"), ("elsewhere", "KLExplosion"), ("sick", "KLExplosion")):
            assert said(root, *words)[0] == 0, words
        assert said(root, "sick", "KLHigh")[1][1] == (
            "  It is inhibited by KLExplosion (critical), which fires now."
        )
        later = (datetime.now(timezone.utc) + timedelta(days=1)).isoformat()
        for run in ("gone", "quiet-7"):
            assert said(root, run, "KLExplosion", at=later)[0] == 0, run


def _silence(url: str, by: str, **patterns: str) -> None:
    now = datetime.now(timezone.utc)
    body = {
        "matchers": [
            {"name": name, "value": value, "isRegex": True, "isEqual": True}
            for name, value in patterns.items()
        ],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=2)).isoformat(),
        "createdBy": by,
        "comment": "planned",
    }
    answer = http_client.post(f"{url}/api/v2/silences", body)
    assert answer
    assert answer.done
