"""The whole stack with the bridge and robots; alerts come from the test instead of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import Self

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment
from stepwatch.system import http_client
from stepwatch.system.files import from_now_on
from tests.e2e.stack import PARTS, Stack, server
from tests.real.robots import Robot
from tests.real.waiting import eventually


class Bridged(Stack):
    """A stack whose receivers are robots, which the caller starts.

    Args:
        folder: An empty folder for everything.
        versions: Of Prometheus and Alertmanager.
        robots: A robot, or what has its ``kind``, ``url`` and ``secret``, by the receiver's name.
        secrets: What receivers sign with; by default what their robot wants.
        settings: More of config.yaml.
    """

    names: ClassVar[tuple[str, ...]] = (*PARTS, "bridge")

    def __init__(
        self,
        folder: Path,
        versions: tuple[str, str],
        robots: Mapping[str, Any],
        secrets: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        receivers = []
        for number, (name, robot) in enumerate(robots.items()):
            url, secret = folder / f"url-{number}", folder / f"secret-{number}"
            url.write_text(robot.url)
            keys = {"url_file": str(url)}
            if word := (secrets or {}).get(name, robot.secret):
                secret.write_text(word)
                keys["secret_file"] = str(secret)
            receivers.append({"name": name, robot.kind: keys})
        super().__init__(folder, versions, receivers=receivers, **settings)
        self.bridge = server(self.parts["bridge"])
        self._since = datetime.now(timezone.utc)

    def __enter__(self) -> Self:
        super().__enter__()
        self._open.enter_context(self.bridge)
        return self

    def post(self, *runs: str, severity: str = "critical", over: bool = False) -> None:
        """Have KLExplosion of these runs fire, or end, as Prometheus tells Alertmanager."""
        now = datetime.now(timezone.utc)
        labels = {"alertname": "KLExplosion", "severity": severity, "topic": "kl"}
        times = {"startsAt": self._since, "endsAt": now if over else now + timedelta(hours=1)}
        written = {name: moment.isoformat() for name, moment in times.items()}
        alerts = [{"labels": {**labels, "run": run}, **written} for run in runs]
        url = f"http://{self.config.address('alertmanager')}/api/v2/alerts"
        eventually(lambda: (answer := http_client.post(url, alerts)) and answer.done)  # it may be restarting

    def metric(self, name: str) -> float:
        """The sum of a metric of the bridge over all its labels."""
        page = http_client.read(f"http://{self.config.address('bridge')}/metrics") or ""
        lines = (line for line in page.splitlines() if line.startswith(f"stepwatch_bridge_{name}{{"))
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def deployment(self, config: Config) -> Deployment:
        """As `test-alert` asks for it."""
        return self.state.deployment(config, parts=frozenset(self.names))

    def journal(self, _: str) -> Callable[[], str]:
        """What Alertmanager logs from now on."""
        return from_now_on(self.alertmanager.log)

    def log(self, part: str) -> str:
        """Where to read more."""
        return f"the log of {part}"

    def failing(self) -> list[dict[str, Any]]:
        """NotificationFailures, pending or firing, as Prometheus has it."""
        return self.query('ALERTS{alertname="NotificationFailures"}')

    def _seen(self) -> str:
        return f"{super()._seen()} {self.bridge.log.read_text()[-2000:]}"


def named(robot: Robot) -> Counter[str]:
    """How often each run was named by a robot's messages."""
    lines: Iterator[str] = (text.split("\n")[0] for text in robot.texts())
    return Counter(
        word.strip("*")
        for line in lines
        for word in line.replace("<", " ").split()
        if word.startswith("run-")
    )
