"""Alertmanager and the notifier killed at random while 200 alerts are on their way: none is lost."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Event, Thread

import yaml

from stepwatch.config import load
from stepwatch.config.models import Ports
from stepwatch.deploy.native import stack as native
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import generate
from tests.alertmanager.route import QUICK, alert, post
from tests.e2e.stack import server
from tests.real import AlertmanagerServer, Server, eventually, free_port
from tests.real.robots import Feishu

ALERTS = 200
KILLS = 12
SECRET = "SECs3cret-of-the-robot"


class Around:
    """A real Alertmanager with the rendered configuration, the notifier as `make up` starts it, a robot."""

    def __init__(self, folder: Path) -> None:
        self.robot = Feishu(secret=SECRET)
        (folder / "url").write_text(self.robot.url)
        (folder / "secret").write_text(SECRET)
        chat = {"url_file": str(folder / "url"), "secret_file": str(folder / "secret")}
        file = folder / "config.yaml"
        settings = {
            "discovery": {"ray": None},
            "ports": {name: free_port() for name in Ports.model_fields},
            "receivers": [{"name": "chat/聊天", "feishu": chat}],
            **yaml.safe_load(QUICK),
        }
        file.write_text(yaml.safe_dump(settings, allow_unicode=True))
        state = State(folder / "state")
        state.make_password()
        parts = frozenset({"exporter", "prometheus", "alertmanager", "notifier"})
        generate(file, state.rendered, place=partial(state.deployment, parts=parts))
        self.config = load(file)
        self.notifier = server(native.Stack(self.config, state, folder).notifier())
        rendered = state.rendered / "alertmanager/generated"
        options = ("--data.maintenance-interval=10s",)
        port = self.config.ports.alertmanager_backend
        self.alertmanager = AlertmanagerServer("0.31", rendered, port=port, options=options)

    def arrived(self) -> Counter[str]:
        """How often each run was named as firing."""
        lines = [line for text in self.robot.texts() for line in text.split("\n") if "KLExplosion" in line]
        return Counter(word for line in lines for word in line.split() if word.startswith("run-"))


def test_none_of_200_alerts_is_lost_and_none_comes_more_than_twice(tmp_path: Path) -> None:
    around = Around(tmp_path)
    runs = [f"run-{number:03d}" for number in range(ALERTS)]
    dice = random.Random(22)
    with around.robot, around.alertmanager, around.notifier:
        posted, over = Event(), Event()

        def fire() -> None:
            for begin in range(0, ALERTS, 10):
                _posted(around.alertmanager, runs[begin : begin + 10])
                time.sleep(0.2)
            posted.set()
            while not over.wait(3):  # as Prometheus does: an Alertmanager that was killed knows no alert
                _posted(around.alertmanager, runs)

        thread = Thread(target=fire, daemon=True)
        thread.start()
        killed: list[Server] = [around.notifier] * (KILLS - 2) + [around.alertmanager] * 2
        dice.shuffle(killed)
        for each in killed:
            time.sleep(dice.uniform(0.05, 0.8))
            each.kill()
            each.start()
        posted.wait(300)
        eventually(lambda: set(around.arrived()) >= set(runs), seen=around.notifier.log.read_text)
        over.set()
        thread.join(60)
        found = around.arrived()

    assert set(found) == set(runs)
    # One that was under way while a program was killed may come twice.
    assert max(found.values()) <= 2, {run: count for run, count in found.items() if count > 2}


def _posted(alertmanager: AlertmanagerServer, runs: list[str]) -> None:
    labels = [alert("KLExplosion", run, topic="kl") for run in runs]
    while True:
        try:
            post(alertmanager, *labels)
        except OSError:
            time.sleep(0.2)  # it is being started again
        else:
            return
