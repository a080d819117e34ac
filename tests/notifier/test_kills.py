"""Alertmanager and the notifier killed at random while 200 alerts are on their way: none is lost."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from datetime import datetime, timezone
from http.client import HTTPException
from pathlib import Path
from threading import Event, Thread

from stepwatch.system import http_client
from tests.alertmanager.route import alert, post
from tests.notifier.around import Around
from tests.real import AlertmanagerServer, Server, eventually
from tests.real.robots import Feishu
from tests.real.waiting import HANG_SECONDS

ALERTS = 200
KILLS = 12
SECRET = "SECs3cret-of-the-robot"


def arrived(robot: Feishu) -> Counter[str]:
    """How often each run was named as firing."""
    lines = [line for text in robot.texts() for line in text.split("\n") if "KLExplosion" in line]
    return Counter(word for line in lines for word in line.split() if word.startswith("run-"))


def test_none_of_200_alerts_is_lost_and_none_comes_more_than_twice(tmp_path: Path) -> None:
    robot = Feishu(secret=SECRET)
    around = Around(tmp_path, {"chat/聊天": robot})
    runs = [f"run-{number:03d}" for number in range(ALERTS)]
    dice = random.Random(22)
    with robot, around.alertmanager, around.notifier:
        posted, over = Event(), Event()
        since = datetime.now(timezone.utc)  # Prometheus posts an alert again with the start that it had

        def fire() -> None:
            for begin in range(0, ALERTS, 10):
                _posted(around.alertmanager, runs[begin : begin + 10], since)
                time.sleep(0.2)
            posted.set()
            while not over.wait(3):  # as Prometheus does: an Alertmanager that was killed knows no alert
                _posted(around.alertmanager, runs, since)

        thread = Thread(target=fire, daemon=True)
        thread.start()
        killed: list[Server] = [around.notifier] * (KILLS - 2) + [around.alertmanager] * 2
        dice.shuffle(killed)
        for each in killed:
            time.sleep(dice.uniform(0.05, 0.8))
            each.kill()
            each.start()
            # A kill costs a second delivery of the one request under way: the next strikes after that.
            again = _under_way(around)
            eventually(lambda again=again: not again & _under_way(around), seen=around.notifier.log.read_text)
        posted.wait(300)
        eventually(lambda: set(arrived(robot)) >= set(runs), seen=around.notifier.log.read_text)
        over.set()
        thread.join(60)
        found = arrived(robot)

    assert set(found) == set(runs)
    # One that was under way while a program was killed may come twice.
    assert max(found.values()) <= 2, {run: count for run, count in found.items() if count > 2}


def _under_way(around: Around) -> set[int]:
    """The messages that wait though an attempt was made."""
    page = http_client.read(f"{around.url}/api/v1/deliveries", timeout=HANG_SECONDS)
    assert page is not None
    found = json.loads(page)["deliveries"]
    return {each["id"] for each in found if each["state"] == "waiting" and each["attempts"]}


def _posted(alertmanager: AlertmanagerServer, runs: list[str], begun: datetime) -> None:
    labels = [alert("KLExplosion", run, topic="kl") for run in runs]
    while True:
        try:
            post(alertmanager, *labels, begun=begun)
        except (OSError, HTTPException):
            time.sleep(0.2)  # it is being started again
        else:
            return
