"""Alertmanager's own blocks: what both amtools say of them, and where in config.yaml that is."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.config.deployment import InContainers
from stepwatch.config.receiver_kinds import KINDS
from stepwatch.schema.errors import ConfigError, Refused
from tests.alertmanager.conftest import Render
from tests.real import Tool, alertmanager

LEAST = {
    "slack_configs": "{api_url_file: chat-url}",
    "email_configs": "{to: a@b.example, from: c@d.example, smarthost: 'h:25', headers: {X-Team: rl}}",
    "webhook_configs": "{url: 'http://127.0.0.1:9/a'}",
    "pagerduty_configs": "{routing_key_file: token}",
    "telegram_configs": "{bot_token_file: token, chat_id: -100}",
    "discord_configs": "{webhook_url_file: chat-url}",
    "msteams_configs": "{webhook_url_file: chat-url}",
    "msteamsv2_configs": "{webhook_url_file: chat-url}",
    "opsgenie_configs": "{api_key_file: token}",
    "pushover_configs": "{user_key_file: token, token_file: token}",
    "wechat_configs": "{api_secret_file: token, corp_id: c, agent_id: '1'}",
    "victorops_configs": "{api_key_file: token, routing_key: team}",
    "webex_configs": "{room_id: r, http_config: {authorization: {credentials_file: token}}}",
    "sns_configs": "{topic_arn: 'arn:aws:sns:us-east-2:1:a', sigv4: {region: us-east-2}}",
    "jira_configs": "{api_url: 'https://j.example/', project: RL, issue_type: Bug, resolve_transition: Done}",
    "rocketchat_configs": "{api_url: 'https://r.example/', token_file: token, token_id_file: token}",
    "incidentio_configs": "{url: 'https://i.example/', alert_source_token_file: token}",
    "mattermost_configs": "{webhook_url_file: chat-url}",
}


@pytest.fixture(name="render")
def _render(render: Render) -> Render:
    """Rendered whole, with the checks of amtool."""
    return partial(render, whole=True)


def receivers(blocks: Mapping[str, str]) -> str:
    return "receivers:\n" + "".join(f"- name: {key}\n  {key}:\n  - {keys}\n" for key, keys in blocks.items())


def use(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWATCH_ALERTMANAGER", str(tool.server))
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(tool.tool))


def ways(folder: Path) -> dict[str, dict[str, Any]]:
    document = yaml.safe_load((folder / "alertmanager.yml").read_text())
    return {each["name"]: each.get(each["name"], [{}])[0] for each in document["receivers"]}


def test_every_kind_with_its_least_keys_is_taken_by_the_newest_amtool_with_our_texts(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(alertmanager("0.31"), monkeypatch)

    found = ways(render(receivers(LEAST)))

    assert set(LEAST) == set(KINDS)
    for key, kind in KINDS.items():
        assert found[key]["send_resolved"] is True
        assert kind.texts.keys() <= found[key].keys()
        assert (found[key].get("http_config", {}).get("follow_redirects") is False) == kind.http
    assert found["email_configs"]["headers"] == {
        "X-Team": "rl",
        "Subject": '{{ template "stepwatch.title" . }}',
    }


def test_what_the_user_wrote_stays(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    use(alertmanager("0.31"), monkeypatch)
    own = {
        "slack_configs": "{api_url_file: chat-url, title: mine, send_resolved: false, username: ''}",
        "telegram_configs": "{bot_token_file: token, chat_id: 1, parse_mode: HTML}",
        "jira_configs": "{api_url: 'https://j.example/', project: RL, issue_type: Bug}",
    }

    found = ways(render(receivers(own)))

    slack, telegram, jira = (found[key] for key in own)
    assert (slack["title"], slack["send_resolved"], slack["username"]) == ("mine", False, "")
    assert jira["send_resolved"] is False  # no transition is written
    # Our message is plain text: as HTML or Markdown it would be refused for its < and _.
    assert "message" not in telegram


def known_keys(tool: Tool, key: str, names: list[str], folder: Path) -> set[str] | None:
    """Which of these keys a block has, by an amtool; None where it has no such block."""
    lines = ["route: {receiver: a}", "receivers:", "- name: a", f"  {key}:", "  -"]
    path = folder / "probe.yml"
    path.write_text("\n".join([*lines, *(f"    {name}: {{zz: 1}}" for name in names)]))
    done = subprocess.run([tool.tool, "check-config", path], capture_output=True, text=True, check=False)
    unknown = {
        int(line): name for line, name in re.findall(r"line (\d+): field (\w+) not found", done.stdout)
    }
    return None if 4 in unknown else set(names) - set(unknown.values())


@pytest.mark.parametrize("key", KINDS)
def test_the_table_of_first_versions_is_what_both_amtools_know(key: str, tmp_path: Path) -> None:
    kind = KINDS[key]
    files = [f"{name}_file" for name in kind.secrets]
    names = sorted({*kind.newer, *kind.texts, *kind.secrets, *files})

    for version in ("0.25", "0.31"):
        known = known_keys(alertmanager(version), key, [*names, "no_such_key"], tmp_path)
        number = (0, int(version.partition(".")[2]), 0)
        if number < kind.since:
            assert known is None
            continue
        # A key without a twin in Alertmanager itself: app_token came with its file.
        assert known == {
            name
            for name in names
            if number >= kind.newer.get(name, kind.newer.get(f"{name}_file", kind.since))
            or (name in kind.secrets and known and name in known)
        }


def test_what_the_running_alertmanager_is_too_old_for_is_refused_with_the_version(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(alertmanager("0.25"), monkeypatch)
    blocks = ("telegram_configs", "msteamsv2_configs", "slack_configs")

    with pytest.raises(ConfigError) as refusal:
        render(receivers({key: LEAST[key] for key in blocks}))

    found = re.findall(r"config\.yaml:(\d+): (\S+): needs (\w+ \S+) or later", str(refusal.value))
    assert found == [
        ("4", "receivers[0].telegram_configs[0].bot_token_file", "Alertmanager 0.26"),
        ("6", "receivers[1].msteamsv2_configs", "Alertmanager 0.28"),
    ]


BAD = """
receivers:
- {name: fine, webhook: {url: 'http://127.0.0.1:9/a'}}
- name: chat
  slack_configs:
  - api_url_file: chat-url
    chanel: "#rl"
    http_config:
      tls_config:
        insecure: true
- name: no one
  email_configs:
  - from: a@b.example
    smarthost: "h:25"
- name: phone
  telegram_configs:
  - bot_token_file: token
    chat_id: many
"""


def test_what_amtool_refuses_is_said_by_line_and_key_of_config_yaml(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(alertmanager("0.31"), monkeypatch)

    with pytest.raises(Refused) as refusal:
        render(BAD)

    lines = [line.partition("/config.yaml:")[2] for line in str(refusal.value).splitlines()]
    page = "https://prometheus.io/docs/alerting/latest/configuration"
    assert lines[0] == (
        "7: receivers[1].slack_configs[0].chanel: unknown key. Expected: what Alertmanager's documentation "
        f"names for slack_configs. Fix: see {page}/#slack_config."
    )
    assert lines[1].startswith(
        "10: receivers[1].slack_configs[0].http_config.tls_config.insecure: unknown key."
    )
    assert lines[2].startswith(
        "13: receivers[2].email_configs[0]: amtool refuses it: missing to address in email config."
    )
    assert lines[3].startswith(
        "18: receivers[3].telegram_configs[0].chat_id: amtool refuses it: cannot unmarshal"
    )
    assert len(lines) == 4


def test_files_and_addresses_are_those_that_a_container_sees(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(alertmanager("0.31").tool))
    monkeypatch.setenv("STEPWATCH_SECRETS_GROUP", "0")
    text = receivers(
        {
            "pagerduty_configs": "{routing_key_file: token, url: 'http://127.0.0.1:9/x'}",
            "email_configs": "{to: a@b.example, from: c@d.example, smarthost: 'localhost:25'}",
        }
    )

    class Seen(InContainers):
        def file(self, path: Path) -> str:
            return f"/etc/stepwatch/secrets/{path.name}"

    found = ways(render(text, place=lambda _: Seen()))

    pager, mail = found["pagerduty_configs"], found["email_configs"]
    assert pager["routing_key_file"] == "/etc/stepwatch/secrets/token"
    assert pager["url"] == "http://host.docker.internal:9/x"
    assert mail["smarthost"] == "host.docker.internal:25"
    assert "s3cret" not in json.dumps(found)
