"""Receivers in Alertmanager's own form: what is refused, what becomes of files, and hours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.alerts.table import TABLE
from stepwatch.config import load
from stepwatch.config.hours import When
from stepwatch.config.receiver_kinds import KINDS
from stepwatch.schema.errors import ConfigError
from stepwatch.schema.scalars import TOPICS


def written(folder: Path, text: str) -> Path:
    for name, content in (("token", "s3cret-token\n"), ("url", "https://chat.example/s3cret\n")):
        (folder / name).write_text(content)
    (folder / "config.yaml").write_text(text)
    return folder / "config.yaml"


def refusal(folder: Path, block: str, keys: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(folder, f"receivers:\n- name: a\n  {block}:\n  - {keys}\n"))
    return str(caught.value).replace(str(folder), "")


INLINE = {
    "slack_configs": ["api_url", "app_token"],
    "email_configs": ["auth_password", "auth_secret"],
    "pagerduty_configs": ["routing_key", "service_key"],
    "telegram_configs": ["bot_token"],
    "discord_configs": ["webhook_url"],
    "msteams_configs": ["webhook_url"],
    "msteamsv2_configs": ["webhook_url"],
    "opsgenie_configs": ["api_key"],
    "pushover_configs": ["token", "user_key"],
    "wechat_configs": ["api_secret"],
    "victorops_configs": ["api_key"],
    "rocketchat_configs": ["token", "token_id"],
    "incidentio_configs": ["alert_source_token"],
    "mattermost_configs": ["webhook_url"],
}


@pytest.mark.parametrize(("block", "key"), [(block, key) for block, keys in INLINE.items() for key in keys])
def test_an_inline_secret_is_refused_with_the_file_to_use_and_never_shown(
    tmp_path: Path, block: str, key: str
) -> None:
    said = refusal(tmp_path, block, f"{key}: https://x.example/hunter2hunter2")

    assert said == (
        f"/config.yaml:4: receivers[0].{block}[0].{key}: is a secret that would be written to generated "
        f"files. Expected: {key}_file, which names a file with it alone. "
        f"Fix: put it into a file below secrets/, and name that in {key}_file."
    )


@pytest.mark.parametrize(
    ("block", "keys", "says"),
    [
        (
            "webex_configs",
            "http_config: {authorization: {credentials: hunter2}}",
            "name that in credentials_file",
        ),
        (
            "jira_configs",
            "http_config: {basic_auth: {username: a, password: hunter2}}",
            "name that in password_file",
        ),
        (
            "slack_configs",
            "http_config: {oauth2: {client_secret: hunter2}}",
            "name that in client_secret_file",
        ),
        ("slack_configs", "http_config: {tls_config: {key: hunter2}}", "name that in key_file"),
        ("slack_configs", "http_config: {http_headers: {X-A: {secrets: [hunter2]}}}", "name that in files"),
        ("sns_configs", "sigv4: {access_key: hunter2, secret_key: hunter2}", "name a profile or role_arn"),
        ("webhook_configs", "url: http://h/services/T0/hunter2hunter2hunter2", "name that in url_file"),
        ("pagerduty_configs", "url: http://u:hunter2@h/", "expected: a url without secrets"),
        ("slack_configs", "http_config: {proxy_url: http://u:hunter2@h/}", "expected: a url without secrets"),
        ("telegram_configs", "bot_token_file: gone", "names a file that does not exist"),
        ("discord_configs", "webhook_url_file: token", "names a file that holds no url"),
        ("slack_configs", "http_config: {tls_config: {ca_file: gone}}", "names a file that cannot be read"),
    ],
)
def test_a_secret_elsewhere_and_an_invalid_file_are_refused(
    tmp_path: Path, block: str, keys: str, says: str
) -> None:
    said = refusal(tmp_path, block, keys)

    assert f"/config.yaml:4: receivers[0].{block}[0]." in said
    assert says in said.lower()
    assert "hunter2" not in said


def test_a_block_must_be_one_in_a_list(tmp_path: Path) -> None:
    assert "names several. Expected: one block in a list" in refusal(
        tmp_path, "slack_configs", "api_url_file: url\n  - api_url_file: url"
    )


def test_files_of_a_block_are_meant_from_the_folder_and_its_secrets_are_known(tmp_path: Path) -> None:
    http = "http_config: {tls_config: {ca_file: url}}"
    text = f"receivers: [{{name: a, slack_configs: [{{api_url_file: url, {http}}}]}}]"

    way = load(written(tmp_path, text)).receivers[0].integration

    assert way.secrets == (tmp_path / "url",)


def test_the_kinds_are_alertmanagers_keys() -> None:
    assert {kind.key for kind in KINDS.values()} == set(KINDS)
    assert set(INLINE) == {kind.key for kind in KINDS.values() if kind.secrets}


def test_topics_are_those_of_the_table_of_alerts() -> None:
    assert set(TOPICS) == {alert.topic for alert in TABLE}


def hours(text: str) -> When:
    return When.model_validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{times: [9-17]}", "is not a time range"),
        ("{times: ['22:00-06:00']}", "Fix: write two: 22:00-24:00 and 00:00-06:00"),
        ("{weekdays: [mo]}", "is not valid"),
        ("{weekdays: ['friday:monday']}", "ends before it begins"),
        ("{location: Berlin}", "is not a time zone"),
        ("{days_of_month: [1]}", "unknown key. Expected: one of times, weekdays, location"),
    ],
)
def test_hours_that_are_none_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="receivers"):
        load(written(tmp_path, f"receivers: [{{name: a, webhook: {{url: 'http://h/'}}, when: {text}}}]"))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml")
    assert says in str(caught.value)


def test_an_undefined_interval_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    text = (
        "time_intervals: [{name: office, time_intervals: [{weekdays: ['monday:friday']}]}]\n"
        "receivers: [{name: a, webhook: {url: 'http://h/'}, active_time_intervals: [ofice]}]"
    )

    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text))

    assert str(caught.value).endswith(
        '"ofice" is not among time_intervals. Expected: office. Fix: did you mean office?'
    )


def test_hours_are_rendered_as_alertmanager_counts_weekdays() -> None:
    settings: dict[str, Any] = hours("{weekdays: ['friday:sunday'], times: ['00:00-24:00']}").settings()

    assert settings == {
        "times": [{"start_time": "00:00", "end_time": "24:00"}],
        "weekdays": ["friday:saturday", "sunday"],
        "location": "UTC",
    }
