from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stepwatch.__main__ import main
from tests import real

Values = Mapping[str, Any]
Reported = tuple[int, str, str]
Backtest = Callable[..., Reported]


@pytest.fixture(params=["2.42", "3.13"])
def prometheus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The version of Prometheus that judges."""
    tool = real.prometheus(request.param)
    monkeypatch.setenv("STEPWATCH_PROMETHEUS", str(tool.server))
    monkeypatch.setenv("STEPWATCH_PROMTOOL", str(tool.tool))
    return str(request.param)


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest Prometheus judges."""
    tool = real.prometheus("3.13")
    monkeypatch.setenv("STEPWATCH_PROMETHEUS", str(tool.server))
    monkeypatch.setenv("STEPWATCH_PROMTOOL", str(tool.tool))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with all defaults."""
    path = tmp_path / "config.yaml"
    path.write_text("{}\n")
    return path


@pytest.fixture
def backtest(config: Path, capsys: pytest.CaptureFixture[str]) -> Backtest:
    """Run the command; returns its exit code, output and errors."""

    def run(*arguments: object) -> Reported:
        code = main(["backtest", "--config", str(config), *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def log(path: Path, records: Iterable[Values], first: int = 1) -> Path:
    """Write a log of these records, a step each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"step": step, **values}) for step, values in enumerate(records, first))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def wavering(level: float, count: int, by: float = 0.01) -> list[float]:
    """Values around a level, one above, one below."""
    return [level + (by if index % 2 else -by) for index in range(count)]


def exploding_kl(calm: int = 20, high: int = 10) -> list[dict[str, float]]:
    """A run with a good reward whose KL jumps by 2 nats after so many records."""
    kls = [*wavering(0.05, calm, 0.001), *wavering(2.05, high, 0.001)]
    return [{"reward": reward, "kl": kl} for reward, kl in zip(wavering(0.5, calm + high), kls, strict=True)]


def document(reported: Reported) -> dict[str, Any]:
    """What the command said as JSON."""
    parsed: dict[str, Any] = json.loads(reported[1])
    return parsed
