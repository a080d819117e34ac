"""Receivers of the notifier in config.yaml: refused where they make no sense; rendered only where used."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
import yaml
from exporter.notifier.__main__ import command_line

from stepwatch.config import Config, load
from stepwatch.config.deployment import InContainers, OnThisMachine
from stepwatch.deploy.native.stack import Stack
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import render_all
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import RESOURCES
from stepwatch.system.programs import Program

SETTINGS = PurePosixPath("exporter/generated/notifier.json")


def loaded(folder: Path, receiver: str, more: str = "") -> Config:
    for name, content in (("url", "https://robot.example/hook/s3cret-token"), ("secret", "s3cret-word")):
        (folder / name).write_text(content)
    (folder / "apprise").write_text("bark://s3cret-key@host")
    (folder / "config.yaml").write_text(f"receivers:\n- {{name: chat, {receiver}}}\n{more}")
    return load(folder / "config.yaml")


@pytest.mark.parametrize(
    ("receiver", "says"),
    [
        ("feishu: {}", "receivers[0].feishu.url_file: is missing"),
        ("feishu: {url: 'https://a/b'}", "unknown key"),
        ("wecom: {url_file: url, secret_file: secret}", "unknown key"),
        ("dingtalk: {url_file: nowhere}", "names no file"),
        ("dingtalk: {url_file: secret}", "holds no URL"),
        ("feishu: {url_file: url}, wecom: {url_file: url}", "names feishu and wecom"),
    ],
)
def test_a_receiver_that_makes_no_sense_is_refused_with_its_line(
    tmp_path: Path, receiver: str, says: str
) -> None:
    with pytest.raises(Refused) as refused:
        loaded(tmp_path, receiver)

    assert "config.yaml:2: receivers[0]" in str(refused.value)
    assert says in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_the_service_takes_what_is_rendered_for_it_and_no_file_holds_a_secret(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "feishu: {url_file: url, secret_file: secret, keyword: 告警}",
        "- {name: phone, apprise: {url_file: apprise}}\nlanguage: zh\nlinks: {notifier: 'https://n.example'}\n",
    )
    files = render_all(config, RESOURCES, OnThisMachine)
    (tmp_path / "notifier.json").write_bytes(files[SETTINGS])
    options = command_line([f"--config.file={tmp_path}/notifier.json"]).options()

    chat, phone = options.channels
    assert (chat.name, chat.kind, chat.keyword) == ("chat", "feishu", "告警")
    assert (chat.secrets.url(), chat.secrets.secret()) == (
        "https://robot.example/hook/s3cret-token",
        "s3cret-word",
    )
    assert (phone.kind, phone.secrets.url()) == ("apprise", "bark://s3cret-key@host")
    assert options.link == "https://n.example"
    assert options.repeat == 7200
    assert options.waits["NotifierDown"] == 60
    assert "KLExplosion" not in options.waits
    assert options.texts["Also firing: {names}"] == "同时告警：{names}"
    assert not any(b"s3cret" in content for content in files.values())


def test_alertmanager_hands_over_by_a_webhook_with_its_password(tmp_path: Path) -> None:
    config = loaded(tmp_path, "wecom: {url_file: url}", "- {name: a b/c, wecom: {url_file: url}}\n")
    place = InContainers({tmp_path: "/etc/stepwatch/secrets"})
    tmp_path.chmod(0o755)
    files = render_all(config, RESOURCES, lambda _: place)
    routing = yaml.safe_load(files[PurePosixPath("alertmanager/generated/alertmanager.yml")])
    urls = {
        receiver["name"]: webhook
        for receiver in routing["receivers"]
        for webhook in receiver.get("webhook_configs", ())
    }
    assert urls["chat"]["url"] == urls["(test) chat"]["url"] == "http://notifier:9414/alerts/chat"
    assert urls["a b/c"]["url"] == "http://notifier:9414/alerts/a%20b%2Fc"
    assert urls["chat"]["http_config"]["basic_auth"]["password_file"] == "/run/stepwatch/internal-password"
    channels = json.loads(files[SETTINGS])["channels"]
    assert channels[0]["url_file"] == "/etc/stepwatch/secrets/url"


@pytest.mark.parametrize("used", [False, True])
def test_without_such_a_receiver_there_is_not_a_service_and_no_file(tmp_path: Path, used: bool) -> None:
    config = loaded(tmp_path, "wecom: {url_file: url}" if used else "webhook: {url: 'http://127.0.0.1:1/'}")
    files = render_all(config, RESOURCES, OnThisMachine)
    scraped = files[PurePosixPath("prometheus/generated/prometheus.yml")].decode()
    programs = Program(Path("/p"), (3, 0, 0)), Program(Path("/a"), (0, 31, 0))
    parts = [part.name for part in Stack(config, State(tmp_path), tmp_path).parts(*programs)]

    assert (SETTINGS in files) is used
    assert ("job_name: notifier" in scraped) is used
    assert ("notifier" in parts) is used
