"""Receivers as Alertmanager's settings, held against the Alertmanager and the amtool that are here."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment
from stepwatch.config.integrations import Webhook
from stepwatch.config.loading import written
from stepwatch.config.receiver_kinds import Passed
from stepwatch.config.receivers import Deadman, Receiver
from stepwatch.config.yaml_document import parse
from stepwatch.render.check import TIMEOUT_SECONDS, find
from stepwatch.schema.errors import NOTHING, ConfigError, Fault, KeyPath, Problem
from stepwatch.system import programs

_URL_FILES = (0, 26, 0)
_PAGE = "https://prometheus.io/docs/alerting/latest/configuration"


def notifying(
    deployment: Deployment, receiver: Receiver, *, send_resolved: bool | None = None
) -> dict[str, Any]:
    """Return how a receiver is notified, as Alertmanager's settings have it."""
    way = receiver.integration
    settings = way.settings(receiver.name, deployment)
    own = settings.pop("send_resolved", receiver.send_resolved)
    return {way.block: [{**settings, "send_resolved": own if send_resolved is None else send_resolved}]}


def pinging(deployment: Deployment, deadman: Deadman) -> dict[str, Any]:
    """Return how the checker outside is pinged: never of an end, which would look like a ping."""
    return {Deadman.block: [{**deadman.settings("", deployment), "send_resolved": False}]}


def require_known(config: Config, file: Path, deployment: Deployment) -> None:
    """Check that Alertmanager and amtool are new enough for the receivers. Raises ``ConfigError``."""
    needs = list(_needs(config))
    names = ("amtool",) if deployment.containers else ("alertmanager", "amtool")
    for name in names if needs else ():
        path = find(name)
        version = programs.read_version(path) if path else None
        if path and version and (late := [need for need in needs if version < need[1]]):
            program = _Program(name, path, version, containers=deployment.containers)
            lines = written(file)
            raise ConfigError(
                str(file), [Problem(lines.line(key), program.too_old(key, since)) for key, since in late]
            )


def _needs(config: Config) -> Iterator[tuple[KeyPath, programs.Version]]:
    """Yield each key that the oldest Alertmanager does not know, with the first version that does."""
    if config.deadman.url_file:
        yield ("deadman", "url_file"), _URL_FILES
    for index, receiver in enumerate(config.receivers):
        way = receiver.integration
        if isinstance(way, Webhook) and way.url_file:
            yield ("receivers", index, "webhook", "url_file"), _URL_FILES
        elif isinstance(way, Passed):
            oldest = programs.WANTED["alertmanager"].tool.least
            for path, since in dict.fromkeys(way.needs()):
                if since > oldest:
                    yield ("receivers", index, way.block, *((0, *path) if path else ())), since


@dataclass(frozen=True)
class _Program:
    """The Alertmanager that will run, or the amtool that judges."""

    name: str
    path: Path
    version: programs.Version
    containers: bool

    def too_old(self, key: KeyPath, since: programs.Version) -> Fault:
        """Return the fault of a key that came later."""
        wanted, least = programs.WANTED[self.name], f"{since[0]}.{since[1]}"
        own = "containers bring" if self.containers else "`make up` downloads"
        return Fault(
            f"needs {wanted.title} {least} or later ({self.path} is {programs.written(self.version)})",
            expected="url and credentials_file for this version, or a later one"
            if key[-2:] in (("webhook", "url_file"), ("deadman", "url_file"))
            else "what this version knows, or a later one",
            fix=f"install {wanted.title} {least} or later; or take {self.path} off PATH and unset "
            f"{wanted.variable}: {own} Alertmanager {wanted.tool.release.version}",
            at=key,
            value=NOTHING,
        )


def refused_blocks(config: Config, file: Path, deployment: Deployment) -> ConfigError | None:
    """Return what amtool refuses of the blocks passed through, each judged alone, by line in the file."""
    tool = find("amtool")
    problems = [
        Problem(written(file).line(fault.at), fault)
        for index, receiver in enumerate(config.receivers)
        if tool and isinstance(receiver.integration, Passed)
        for fault in _refused(tool, index, receiver, deployment)
    ]
    return ConfigError(str(file), problems) if problems else None


def _refused(tool: Path, index: int, receiver: Receiver, deployment: Deployment) -> Iterator[Fault]:
    key = receiver.integration.block
    settings = {
        "route": {"receiver": "one"},
        "receivers": [{"name": "one", **notifying(deployment, receiver)}],
    }
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "alertmanager.yml")
        path.write_text(text)
        done = subprocess.run(
            [tool, "check-config", path], capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    if not done.returncode:
        return
    output = done.stdout.decode(errors="replace").partition("FAILED:")[2].strip()
    page = f"{_PAGE}/#{key.removesuffix('s')}"
    places = {line: path for path, line in parse(text, "alertmanager.yml").lines.items()}
    for line, words in re.findall(r"line (\d+): (.*)", output) or [("", output)]:
        # receivers, 0, slack_configs, 0, and what is below
        below = places.get(int(line), ())[4:] if line else ()
        unknown = re.fullmatch(r"field (\S+) not found in type .*", words)
        yield Fault(
            "unknown key" if unknown else f"amtool refuses it: {' '.join(words.split())}",
            expected=f"what Alertmanager's documentation names for {key}",
            fix=f"see {page}",
            value=NOTHING,
            at=("receivers", index, key, 0, *below),
        )
