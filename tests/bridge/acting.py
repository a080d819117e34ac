"""The whole stack with actions, and trainers below `stepwatch run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import Self

from exporter.runs.files import launch
from stepwatch.launch.keeper import descendants
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.e2e.stack import PAIRS, PARTS, Stack, server
from tests.real.ending import ended

QUICK: dict[str, Any] = {
    "intervals": {"runs": "1s", "rules": "1s"},
    "notify": {"critical": {"group_wait": "1s", "group_interval": "1s"}},
    "alerts": {"Stalled": {"silence": "20s"}},
}


class Acting(Stack):
    """The stack, the bridge, and the trainers that were started with ``train``."""

    names: ClassVar[tuple[str, ...]] = (*PARTS, "bridge")

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, PAIRS[-1], **{**QUICK, **settings})
        self.bridge = server(self.parts["bridge"])
        self._audit = self.state.data("bridge") / "audit.jsonl"

    def __enter__(self) -> Self:
        super().__enter__()
        self._open.enter_context(self.bridge)
        self._trainers = self._open.enter_context(ended())
        return self

    def train(
        self,
        run: str,
        *command: str | Path,
        options: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a trainer below the wrapper."""
        place = ("--config", self.folder / "config.yaml", "--runs", self.runs, "--name", run)
        process = subprocess.Popen(
            [sys.executable, "-m", "stepwatch", "run", *place, *options, "--", *command],
            cwd=CHECKOUT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self._trainers.append(process)
        return process

    def trainer(self, process: subprocess.Popen[bytes], marker: str) -> int:
        """The id of the trainer's own process, by a word of its command line."""
        (found,) = (
            pid
            for pid in descendants(process.pid)
            if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            and b"stepwatch" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        )
        return found

    def launch(self, run: str) -> launch.Launch:
        """The last attempt of a run."""
        found = launch.read(self.runs / f"{run}.log")
        assert found is not None
        return found

    def record(self, run: str) -> list[dict[str, Any]]:
        """All that its wrapper noted so far."""
        file = launch.beside(self.runs / f"{run}.log")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def commands(self, run: str) -> list[list[str]]:
        """The command line of each of its attempts."""
        return [each["command"] for each in self.record(run) if "command" in each]

    def ends(self, run: str) -> list[str]:
        """Why each of its attempts ended."""
        ends = (each for each in self.record(run) if "ended" in each)
        return [each["failure"] or each["signal"] or f"exit code {each['exit_code']}" for each in ends]

    def asked(self, run: str) -> list[str]:
        """What its wrapper was asked for and did."""
        return [each["action"] for each in self.record(run) if each.get("done")]

    def log_of(self, run: str) -> str:
        """What a run printed."""
        return (self.runs / f"{run}.log").read_text()

    def audit(self) -> dict[str, list[tuple[str, str]]]:
        """Event, and step, outcome or reason, of each line of the audit log, by run."""
        entries = [json.loads(line) for line in self._audit.read_text().splitlines()]
        names = {each["action"]: each["run"] for each in entries if each["event"] == "opened"}
        told: dict[str, list[tuple[str, str]]] = {}
        for each in entries:
            what = each.get("step") or each.get("outcome") or each.get("reason") or ""
            told.setdefault(each.get("run") or names[each["action"]], []).append((each["event"], what))
        return told

    def known(self, run: str) -> list[dict[str, Any]]:
        """The actions on a run, as the bridge shows them."""
        page = http_client.read(f"http://{self.config.address('bridge')}/api/v1/actions") or '{"actions": []}'
        return [each for each in json.loads(page)["actions"] if each["run"] == run]

    def closed(self, run: str) -> bool:
        """Whether there was an action on a run, and all are over."""
        return bool(self.known(run)) and all(each["outcome"] for each in self.known(run))

    def told(self, run: str) -> set[str]:
        """The names of all alerts about a run that receivers were told of."""
        return {name for name, _ in self.sent(run)}

    def _seen(self) -> str:
        page = http_client.read(f"http://{self.config.address('bridge')}/api/v1/actions")
        return f"{super()._seen()}, actions {page}, {self.bridge.log.read_text()[-2000:]}"
