"""What each kind of receiver gets through a real Alertmanager, against vendor_messages.txt.

`python -m tests.alertmanager.test_vendor_messages` regenerates the file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import generate
from stepwatch.system import http_client
from tests.alertmanager.route import Labels
from tests.real import AlertmanagerServer, alertmanager, eventually
from tests.real.answering import Answering
from tests.real.mailbox import Mailbox

pytestmark = pytest.mark.e2e

GOLDEN = Path(__file__).with_name("vendor_messages.txt")
HOSTILE = "<!channel> @everyone [x](http://evil.example) *b* `c` {{ .Labels }} </b>"
DESCRIPTION = "step 1204: KL 1.62 nats/token or more for 3 steps; limit start 0.02 + 1."

CASES: Mapping[str, list[Labels]] = {
    "one": [{"alertname": "KLExplosion", "run": "ppo/gsm8k_v2", "severity": "critical", "topic": "kl"}],
    "many": [
        {
            "alertname": "TargetDown",
            "severity": "warning",
            "topic": "stack",
            "job": "x",
            "instance": f"n{n:02}:1",
        }
        for n in range(25)
    ],
    "long": [{"alertname": "KLHigh", "run": "long" * 25, "severity": "warning", "topic": "kl"}],
    "Chinese": [
        {"alertname": "RewardDrop", "run": "强化学习/实验 七", "severity": "warning", "topic": "reward"}
    ],
    "hostile": [{"alertname": "LengthCollapse", "run": HOSTILE, "severity": "critical", "topic": "length"}],
}
RECEIVERS = """
links: {{grafana: "https://g.example", alertmanager: "https://a.example", exporter: "https://e.example",
  runbook: "https://r.example/book"}}
notify: {{critical: {{group_wait: 4s, group_interval: 1s}}, warning: {{group_wait: 4s, group_interval: 1s}}}}
receivers:
- {{name: slack, slack_configs: [{{api_url_file: slack}}]}}
- name: mail
  email_configs: [{{to: a@b.example, from: c@d.example, smarthost: "{mail}", require_tls: false}}]
- {{name: webhook, webhook_configs: [{{url: "{webhook}"}}]}}
- {{name: telegram, telegram_configs: [{{api_url: "{telegram}", bot_token_file: token, chat_id: 1}}]}}
- {{name: discord, discord_configs: [{{webhook_url_file: discord}}]}}
- {{name: teams, msteamsv2_configs: [{{webhook_url_file: teams}}]}}
- {{name: pagerduty, pagerduty_configs: [{{url: "{pagerduty}", routing_key_file: token}}]}}
- {{name: connector, msteams_configs: [{{webhook_url_file: connector}}]}}
- {{name: mattermost, mattermost_configs: [{{webhook_url_file: mattermost}}]}}
- name: rocketchat
  rocketchat_configs: [{{api_url: "{rocketchat}", token_file: token, token_id_file: token, channel: rl}}]
- name: webex
  webex_configs:
  - {{api_url: "{webex}", room_id: r, http_config: {{authorization: {{credentials_file: token}}}}}}
- name: wechat
  wechat_configs: [{{api_url: "{wechat}/", api_secret_file: token, corp_id: c, agent_id: "1"}}]
- {{name: opsgenie, opsgenie_configs: [{{api_url: "{opsgenie}/", api_key_file: token}}]}}
- name: victorops
  victorops_configs: [{{api_url: "{victorops}/", api_key_file: token, routing_key: team}}]
- {{name: incidentio, incidentio_configs: [{{url: "{incidentio}", alert_source_token_file: token}}]}}
- name: jira
  jira_configs: [{{api_url: "{jira}/", project: RL, issue_type: Bug, resolve_transition: Done}}]
- name: sns
  sns_configs: [{{api_url: "{sns}", topic_arn: "arn:aws:sns:us-east-2:1:a", sigv4: {{region: us-east-2}}}}]
"""
# Pushover is missing: its address is fixed.
TAKEN = {
    "telegram": '{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"group"}}}',
    "rocketchat": '{"success":true}',
    "wechat": '{"errcode":0,"access_token":"t"}',
    "jira": '{"issues":[{"key":"RL-1","fields":{"status":{"statusCategory":{"key":"new"}}}}],'
    '"transitions":[{"id":"1","name":"Done"}]}',
    "sns": "<PublishResponse><PublishResult></PublishResult></PublishResponse>",
}


def _teams(body: dict[str, Any]) -> str:
    return "\n".join(each["text"] for each in body["attachments"][0]["content"]["body"])


def _pagerduty(body: dict[str, Any]) -> str:
    payload = body.get("payload", {})
    said = payload.get("custom_details", {}).get("text", "")
    return f"{body['event_action']} {payload.get('severity')}\n{payload.get('summary')}\n{said}"


def _slack(body: dict[str, Any]) -> str:
    [said] = body["attachments"]
    return f"{said['color']} {said['title']}\n{said['text']}"


def _webhook(body: dict[str, Any]) -> str:
    alerts = sorted(each["status"] for each in body["alerts"])
    return (
        f"{body['status']} {json.dumps(body['commonLabels'], ensure_ascii=False)} {len(alerts)} {alerts[0]}"
    )


def _rocketchat(body: dict[str, Any]) -> str:
    [said] = body["attachments"]
    return f"{said['title']}\n{said['text']}"


def _opsgenie(body: dict[str, Any]) -> str:
    return f"{body['message']}\n{body['description']}" if "message" in body else "(closes the alert)"


def _victorops(body: dict[str, Any]) -> str:
    return f"{body['message_type']} {body['entity_display_name']}\n{body['state_message']}"


READ: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "slack": _slack,
    "webhook": _webhook,
    "telegram": lambda body: str(body["text"]),
    "discord": lambda body: f"{body['embeds'][0]['title']}\n{body['embeds'][0]['description']}",
    "teams": _teams,
    "pagerduty": _pagerduty,
    "connector": lambda body: f"{body['title']}\n{body['text']}",
    "mattermost": lambda body: str(body["text"]),
    "rocketchat": _rocketchat,
    "webex": lambda body: str(body["markdown"]),
    "wechat": lambda body: str(body["text"]["content"]),
    "opsgenie": _opsgenie,
    "victorops": _victorops,
    "incidentio": _webhook,
    "jira": lambda body: f"{body['fields']['summary']}\n{body['fields']['description']}",
    "sns": lambda body: f"{body['Subject']}\n{body['Message']}",
}


def _said(name: str, sink: Answering) -> list[dict[str, Any]]:
    """The messages of those requests: Jira's issues are searched before, and closed after."""
    return [body for body in sink.received if name != "jira" or "summary" in body.get("fields", ())]


def _named(text: str, times: bool = True) -> str:
    text = text.replace("\r\n", "\n")
    text = re.sub(r"\d\d:\d\d UTC, \d+ \w+", "(time)", text)
    return re.sub(r"(from|to|since)=\d+", r"\1=(time)", text)


def _post(server: AlertmanagerServer, case: str, *, over: bool = False) -> None:
    said = DESCRIPTION if case != "long" else "very " * 700 + "long."
    notes = {"summary": "Something is wrong.", "description": said, "runbook_url": "https://r.example/book#x"}
    if case == "many":
        notes["dashboard_url"] = "https://g.example/d/stepwatch-stack"
    now = time.time()
    at = {"endsAt": now} if over else {"startsAt": now, "endsAt": now + 900}
    stamps = {key: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each)) for key, each in at.items()}
    alerts = [{"labels": labels, "annotations": notes, **stamps} for labels in CASES[case]]
    assert http_client.order(f"{server.url}/api/v2/alerts", alerts) == ""


def messages(folder: Path) -> str:
    """Everything that came, by case and receiver."""
    found: dict[tuple[str, str], str] = {}
    with ExitStack() as stack:
        sinks = {
            name: stack.enter_context(Answering(202 if name == "pagerduty" else 200, TAKEN.get(name, "ok")))
            for name in READ
        }
        mailbox = stack.enter_context(Mailbox())
        for name in ("slack", "discord", "teams", "connector", "mattermost"):
            (folder / name).write_text(sinks[name].url + "/hook")
        (folder / "token").write_text("123:token")
        urls = {name: sink.url for name, sink in sinks.items()}
        (folder / "config.yaml").write_text(RECEIVERS.format(mail=mailbox.address, **urls))
        generate(folder / "config.yaml", folder, place=OnThisMachine)
        server = AlertmanagerServer("0.31", folder / "alertmanager/generated")
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        server.env = {**env, "TZ": "UTC", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        stack.enter_context(server)

        def take(case: str) -> None:
            eventually(lambda: all(_said(*each) for each in sinks.items()) and bool(mailbox.received))
            for name, sink in sinks.items():
                found[case, name] = READ[name](_said(name, sink)[0])
                sink.received.clear()
            mailed = mailbox.received.pop(0)
            found[case, "mail"] = f"{mailed.message['Subject']}\n{mailed.part('plain')}"

        for case in CASES:
            _post(server, case)
            take(case)
            if case == "one":
                _post(server, case, over=True)
                take("resolved")
    return "".join(f"== {case}: {name}\n{_named(text).strip()}\n\n" for (case, name), text in found.items())


@pytest.fixture(name="newest")
def _newest(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = alertmanager("0.31")
    monkeypatch.setenv("STEPWATCH_ALERTMANAGER", str(tool.server))
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(tool.tool))


@pytest.mark.usefixtures("newest")
def test_each_kind_says_one_many_resolved_long_chinese_and_hostile_as_agreed(tmp_path: Path) -> None:
    assert messages(tmp_path) == GOLDEN.read_text()


def test_sns_takes_every_subject() -> None:
    subjects = re.findall(r"^== .*: sns\n(.*)$", GOLDEN.read_text(), re.MULTILINE)
    assert len(subjects) == len(CASES) + 1
    assert [subject for subject in subjects if len(subject) >= 100 or not subject.isascii()] == []


if __name__ == "__main__":
    NEWEST = alertmanager("0.31")
    os.environ |= {"STEPWATCH_ALERTMANAGER": str(NEWEST.server), "STEPWATCH_AMTOOL": str(NEWEST.tool)}
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(messages(Path(made)))
