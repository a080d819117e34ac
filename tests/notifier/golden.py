"""The messages of each channel, as committed: ``python -m tests.notifier.golden`` writes them again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.notifier.channel import Robot, Secrets
from exporter.notifier.outbox import parse
from exporter.notifier.robots import ROBOTS
from exporter.notifier.wording import Addresses, Card, Known, Wording
from stepwatch.languages import catalogue
from tests.notifier.stack import alert, payload

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
KNOWN = Known("42", ("EntropyCollapse", "RewardDrop"))
ADDRESSES = Addresses(
    "http://127.0.0.1:9410", "http://127.0.0.1:9093", "https://notifier.example", "https://grafana.example"
)


def wording(language: str) -> Wording:
    return Wording(ADDRESSES, catalogue(language).of("exporter"), {"KLExplosion": 300.0})


def robot(kind: str, language: str = "en") -> Robot:
    made: Robot = ROBOTS[kind](Secrets(Path("url")), wording(language))
    return made


def card(name: str, language: str = "en") -> Card:
    notification, _ = parse(PAYLOADS[name])
    known = KNOWN if notification.labels.get("run") else Known()
    return wording(language).card(notification, 7, known)


def messages(kind: str) -> dict[str, Any]:
    """The messages of a channel, by case: English, and Chinese where the case is so."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    found = {}
    for name in PAYLOADS:
        language = "zh" if name == "Chinese" else "en"
        found[name] = robot(kind, language).compose([card(name, language)])[0]
    found["merged"] = robot(kind).compose([card("one"), card("resolved"), card("many")])[0]
    return found


def written(kind: str) -> str:
    text = json.dumps(messages(kind), ensure_ascii=False, indent=1) + "\n"
    return text.encode("utf-8", "replace").decode()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in ROBOTS:
        (FOLDER / f"{each}.json").write_text(written(each))
