"""A real exporter with some runs, and the commands that an operator gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.__main__ import main
from tests.real import free_port
from tests.runs.lines import append, measured, verl_json
from tests.runs.scrape import Scrape
from tests.runs.test_main import Exporter, has

RUNS = ("ppo/gsm8k", "ppo/math", "sft-7")


@dataclass
class Site:
    """A configuration, and the exporter that it names, which reads runs from a folder."""

    folder: Path
    exporter: Exporter
    ports: dict[str, int]

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    def write(self, **settings: Any) -> None:
        """Write config.yaml: the ports, and these settings."""
        self.config.write_text(yaml.safe_dump({"ports": self.ports, **settings}))

    def run(self, *words: str) -> int:
        """Give a command about this configuration."""
        command, *rest = words
        return main([command, "--config", str(self.config), *rest])

    def train(self, run: str, first: int, last: int) -> None:
        log = self.folder / "runs" / f"{run}.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        level = RUNS.index(run)  # runs with the same numbers would be taken for one
        steps = range(first, last + 1)
        append(log, *(verl_json(step, measured(step, reward=level + step % 7 / 10)) for step in steps))

    def page(self) -> Scrape:
        return self.exporter.scrape()


@pytest.fixture(name="site")
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("STEPWATCH_STATE", str(tmp_path / "stack"))
    exporter = Exporter("--path", tmp_path / "runs", "--state-dir", tmp_path / "state")
    site = Site(tmp_path, exporter, {"exporter": exporter.port, "alertmanager": free_port()})
    site.write()
    for run in RUNS:
        site.train(run, 1, 20)
    try:
        for run in RUNS:
            exporter.until(has(run))
        yield site
    finally:
        exporter.process.kill()
        exporter.process.communicate()
