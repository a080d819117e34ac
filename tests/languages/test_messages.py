"""What reaches a phone in Chinese: the rules' messages, the run exporter's alert, a test notification."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from exporter.engine_client import Client
from exporter.http_client import Reply
from exporter.runs.alerting_health import AlertingHealth
from exporter.translatable import Text
from stepwatch.config.yaml_document import LOADER
from stepwatch.languages import catalogue
from stepwatch.operate.test_alert import notes
from tests import real
from tests.rules import rendered

CHINESE = {**rendered.EVERYTHING, "language": "zh"}


@pytest.fixture(name="rules", scope="module")
def _rules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, made = tmp_path_factory.mktemp("rules"), []
    for path, data in rendered.files(CHINESE).items():
        if path.parent == rendered.RULES:
            made.append(folder / path.name)
            made[-1].write_bytes(data)
    return made


@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_prometheus_takes_the_rules(version: str, rules: list[Path]) -> None:
    checked = subprocess.run(
        [real.prometheus(version).tool, "check", "rules", *rules], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stderr


def test_nothing_but_messages_differs_from_the_english_rules(rules: list[Path]) -> None:
    english = rendered.files()
    for path in rules:
        theirs = yaml.load(english[rendered.RULES / path.name], LOADER)["groups"]
        for ours, other in zip(
            yaml.load(path.read_text(), LOADER)["groups"][0]["rules"], theirs[0]["rules"], strict=True
        ):
            assert (ours.get("alert"), ours.get("for")) == (other.get("alert"), other.get("for"))
            assert ours["labels"].keys() == other["labels"].keys() if "labels" in other else True
            if "alert" in ours:
                assert ours["expr"] == other["expr"]
                links = ("runbook_url", "dashboard_url")
                assert all(ours["annotations"][each] == other["annotations"][each] for each in links)
                assert ours["annotations"]["summary"] != other["annotations"]["summary"]


def test_the_run_exporters_alert_is_in_chinese_and_its_page_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = json.loads(rendered.files(CHINESE)[PurePosixPath("exporter/generated/runs.json")])
    posted: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(Client, "get", lambda *_: Reply(200, b""))
    monkeypatch.setattr(Client, "post", lambda *words: posted.append(words[-1]) or Reply(200, b""))
    health = AlertingHealth(Client("http://p"), Client("http://a"), ["/proc"], settings["alerting"])
    health.check()
    (alert,) = posted[0]

    assert "State disk is full. /proc: 0.0 MiB free of 0.0 GiB." in health.faults[0]
    assert alert["annotations"]["summary"] == "状态数据所在磁盘已满"
    assert alert["annotations"]["description"] == (
        "/proc：剩余 0.0 MiB，共 0.0 GiB。Prometheus 无法写入采集数据，所有训练任务均未被监控；"
        "Alertmanager 一旦重启，会丢失静默规则。首先：清理该磁盘空间；恢复时无需重启。"
    )


def test_a_text_without_a_translation_stays_english() -> None:
    assert Text("{one}; {more}", one=Text("a"), more="b").translated({"a": "甲"}) == "甲; b"


def test_a_test_notification_is_in_chinese() -> None:
    texts = notes("ops", catalogue("zh"))

    assert texts["summary"] == "这是对接收方 ops 的测试。一切正常。"
    assert "`test-alert ops`" in texts["description"]
