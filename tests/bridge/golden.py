"""The messages of each robot, as committed: ``python -m tests.bridge.golden`` writes them again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.bridge.robots import KINDS, Robot
from exporter.bridge.webhook import parse
from exporter.bridge.words import Card, Words
from stepwatch.languages import catalogue
from tests.bridge.webhook import alert, payload

FOLDER = Path(__file__).with_name("messages")
HOSTILE = 'x](http://evil)<at id=all></at><@all> **b** `c`\n# "q" \u202e\ud800 & {{.}}'
LONG = "A description that goes on and on. " * 60
MANY = [alert("RewardDrop", f"run-{n}", severity="warning") for n in range(3)]
PAYLOADS: Mapping[str, bytes] = {
    "one": payload(alert(run="qwen-7b grpo/1")),
    "many": payload(*MANY, alert("RewardDrop", "run-9", severity="warning", over=True)),
    "resolved": payload(alert(run="qwen-7b", over=True)),
    "long": payload(
        *(
            alert(
                "DiskLow",
                "",
                instance=f"node-{n}:9100",
                annotations={
                    "description": LONG,
                    "dashboard_url": f"http://g/d/stepwatch-nodes?var-machine=node-{n}%3A9100",
                },
            )
            for n in range(200)
        )
    ),
    "long description": payload(alert(annotations={"description": LONG, "action": "字" * 2000})),
    "Chinese": payload(
        alert(
            run="强化学习/实验七",
            annotations={
                "summary": "与参考模型的 KL 爆炸",
                "description": "强化学习/实验七：KL 1.2，限值 0.5，自第 40 步起。",
                "action": "降低学习率",
            },
        )
    ),
    "hostile run name": payload(
        alert(
            run=HOSTILE, annotations={"description": f"{HOSTILE}: KL", "summary": HOSTILE, "action": HOSTILE}
        )
    ),
}


def words(language: str = "en") -> Words:
    addresses = "http://127.0.0.1:9410", "http://127.0.0.1:9093", "https://grafana.example"
    return Words(*addresses, texts=catalogue(language).of("exporter"), waits={"KLExplosion": 300.0})


def card(name: str, language: str = "en") -> Card:
    return words(language).card(parse(PAYLOADS[name]))


def messages(kind: str, keyword: str = "") -> dict[str, Any]:
    """The messages of a robot, by case: English, and Chinese where the case is so."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    found = {}
    for name in PAYLOADS:
        language = "zh" if name == "Chinese" else "en"
        robot = Robot(kind, Path("url"), keyword=keyword)
        found[name] = robot.compose(card(name, language), words(language))
    return found


def written(kind: str) -> str:
    return json.dumps(messages(kind), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in KINDS:
        (FOLDER / f"{each}.json").write_text(written(each))
