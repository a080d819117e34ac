"""The words of a chat's robot, as the bridge tells them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwatch.config import load
from stepwatch.operate.test_alert import fix_of, robot_words
from tests.real.answering import Answering

UNKNOWN = "The bridge at {url} has no answer of the robot. Fix: read the bridge's log."


@pytest.mark.parametrize(
    ("receiver", "at", "says"),
    [
        ("team", 100, "The robot's answer: 19021 sign match fail."),
        ("(test) team", 101.5, "The robot's answer: 19021 sign match fail."),
        ("team", 99, UNKNOWN),
        ("other", 101, UNKNOWN),
        ("team", "soon", UNKNOWN),
    ],
)
def test_what_the_robot_said_since_then_is_shown(receiver: str, at: object, says: str) -> None:
    robot = {"receiver": receiver, "kind": "feishu", "said": "19021 sign match fail.", "at": at}
    with Answering(body=json.dumps([robot])) as bridge:
        assert robot_words(bridge.url, "team", 100) == says.replace("{url}", bridge.url)


@pytest.mark.parametrize("body", ["no JSON", "{}", "[1]"])
def test_an_answer_of_another_form_is_none(body: str) -> None:
    with Answering(body=body) as bridge:
        assert robot_words(bridge.url, "team", 100) == UNKNOWN.replace("{url}", bridge.url)


def test_the_bridges_reason_in_alertmanagers_log_has_its_fix(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://open.feishu.cn/open-apis/bot/v2/hook/00000000-0000")
    (tmp_path / "config.yaml").write_text("receivers: [{name: team, feishu: {url_file: url}}]")
    (receiver,) = load(tmp_path / "config.yaml").receivers
    error = "unexpected status code 400: http://127.0.0.1:9414/webhook/team: signature: 19021 sign match fail"
    assert fix_of(error, receiver) == (
        "check secret_file, and the clock of this machine: a signature is valid for an hour"
    )
