"""A real Alertmanager with the rendered configuration, and the notifier as `make up` starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from stepwatch.config import Config, load
from stepwatch.config.deployment import Deployment
from stepwatch.config.sections import Ports
from stepwatch.deploy.native import stack as native
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import generate
from stepwatch.system.files import from_now_on
from tests.alertmanager.route import QUICK
from tests.e2e.stack import server
from tests.real import AlertmanagerServer, free_port

PARTS = frozenset({"exporter", "prometheus", "alertmanager", "notifier"})


class Around:
    """Not started; neither are the robots.

    Args:
        folder: An empty folder for all of it.
        robots: What stands behind each receiver: a `Robot`, or what has its `kind`, `url` and `secret`.
        secrets: What receivers sign with, by default what their robot wants.
        settings: More of config.yaml.
    """

    def __init__(
        self,
        folder: Path,
        robots: Mapping[str, Any],
        secrets: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.folder, self.config_file = folder, folder / "config.yaml"
        receivers = []
        for number, (name, robot) in enumerate(robots.items()):
            url, secret = folder / f"url-{number}", folder / f"secret-{number}"
            url.write_text(robot.url)
            keys = {"url_file": str(url)}
            if word := (secrets or {}).get(name, robot.secret):
                secret.write_text(word)
                keys["secret_file"] = str(secret)
            receivers.append({"name": name, robot.kind: keys})
        document = {
            "discovery": {"ray": None},
            "ports": {name: free_port() for name in Ports.model_fields},
            "receivers": receivers,
            **yaml.safe_load(QUICK),
            **settings,
        }
        self.config_file.write_text(yaml.safe_dump(document, allow_unicode=True))
        self.state = State(folder / "state")
        self.state.make_password()
        generate(self.config_file, self.state.rendered, place=self.deployment)
        self.config = load(self.config_file)
        self.notifier = server(native.Stack(self.config, self.state, folder).notifier())
        rendered = self.state.rendered / "alertmanager/generated"
        options = ("--data.maintenance-interval=10s", "--enable-feature=receiver-name-in-metrics")
        port = self.config.ports.alertmanager
        self.alertmanager = AlertmanagerServer("0.31", rendered, port=port, options=options)
        self.url = f"http://{self.config.address('notifier')}"

    def deployment(self, config: Config) -> Deployment:
        place: Callable[[Config], Deployment] = partial(self.state.deployment, parts=PARTS)
        return place(config)

    def journal(self, _: str) -> Callable[[], str]:
        return from_now_on(self.alertmanager.log)

    def log(self, part: str) -> str:
        return f"the log of {part}"
