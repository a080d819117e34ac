"""Alerts with the record at which each fires first: of recorded logs, of made ones, and of the demo."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from demo.scenario import SCENARIOS
from demo.trainer import Trainer
from tests import public_logs
from tests.own_logs import LOGS
from tests.parity.product import rounded, stepwatch

MINUTES = 8
"""Of the demo's time, in which each sick run has shown what it has."""
STEP_SECONDS = 0.3
STEPS = 160
ONSET = 60
"""The step from which on a made run goes wrong."""


def own() -> Iterator[str]:
    """Of each committed log."""
    yield from _judged(LOGS)


def public() -> Iterator[str]:
    """Of each public log; those of one name in two folders go by their paths."""
    folders = public_logs.folders()
    for line in _judged(*folders):
        yield line.replace(f"{folders[0].parent}/", "") if folders else line


def demo() -> Iterator[str]:
    """Of the demo's runs, in its own time."""
    with TemporaryDirectory(prefix="stepwatch-parity-") as folder:
        for scenario in SCENARIOS:
            trainer = Trainer(replace(scenario, logger="console"), Path(folder), seed=1, seconds=STEP_SECONDS)
            for _ in range(round(MINUTES * 60 / STEP_SECONDS)):
                trainer.tick()
            trainer.close()
        yield from _judged(Path(folder))


def made() -> Iterator[str]:
    """Of runs of which one signal leaves its level slowly: where it crosses a limit is where the limit is."""
    with TemporaryDirectory(prefix="stepwatch-parity-") as folder:
        for name, change in CURVES.items():
            Path(folder, f"{name}.jsonl").write_text(_log(change))
        yield from _judged(Path(folder), details=True)


def _log(change: Callable[[float], Mapping[str, float | None]]) -> str:
    dice = Random(7)
    lines = []
    for step in range(1, STEPS + 1):
        healthy = {
            "reward": 0.5 + 0.1 * step / STEPS,
            "reward_std": 0.3,
            "kl": 0.02,
            "entropy": 0.8,
            "grad_norm": 0.5,
            "policy_loss": 0.01,
            "response_length": 300.0,
            "truncated_ratio": 0.02,
            "step_seconds": 10.0,
            "tokens_per_second": 5000.0,
        }
        values = {key: value * (1 + dice.gauss(0, 0.03)) for key, value in healthy.items()}
        gone = max(0, step - ONSET) / (STEPS - ONSET)
        scaled = {
            key: factor * values.get(key, 1.0) if factor is not None else float("nan")
            for key, factor in (change(gone).items() if gone else ())
        }
        lines.append(json.dumps({"step": step, **values, **scaled}))
    return "".join(f"{line}\n" for line in lines)


CURVES: dict[str, Callable[[float], Mapping[str, float | None]]] = {
    "healthy": lambda _: {},
    "reward falls": lambda gone: {"reward": 1 - gone},
    "reward falls at once": lambda _: {"reward": 0.02},
    "reward stays zero": lambda _: {"reward": 0.0, "reward_std": 0.0},
    "reward spread goes": lambda gone: {"reward_std": (1 - gone) ** 4},
    "no group differs": lambda gone: {"zero_std_ratio": gone},
    "kl rises": lambda gone: {"kl": 1 + 100 * gone},
    "kl explodes": lambda gone: {"kl": 10 ** (4 * gone)},
    "sequence kl rises": lambda gone: {"kl": 1, "objective/kl": 10 ** (3 * gone)},
    "policy kl rises": lambda gone: {"ppo_kl": 10 ** (3 * gone - 3)},
    "entropy falls": lambda gone: {"entropy": (1 - gone) ** 3},
    "entropy explodes": lambda gone: {"entropy": 1 + 10 * gone},
    "gradient grows": lambda gone: {"grad_norm": 10 ** (3 * gone)},
    "gradient is nan": lambda _: {"grad_norm": None},
    "gradient is zero": lambda _: {"grad_norm": 0.0},
    "length runs away": lambda gone: {"response_length": 1 + 5 * gone, "reward": 1 - gone / 2},
    "length collapses": lambda gone: {"response_length": (1 - gone) ** 2},
    "responses are cut": lambda gone: {"truncated_ratio": 1 + 45 * gone},
    "steps get slow": lambda gone: {"step_seconds": 1 + 5 * gone, "tokens_per_second": 1 / (1 + 5 * gone)},
    "clip ratio rises": lambda gone: {"clip_ratio": gone},
    "value loss grows": lambda gone: {"value_loss": 10 ** (3 * gone), "explained_variance": 0.9 - 2 * gone},
    "validation falls": lambda gone: {"val_score": 0.6 - 0.6 * gone},
}
"""By what goes wrong: factors of healthy values, or values of other keys; None is NaN."""


def _judged(*paths: Path, details: bool = False) -> Iterator[str]:
    """The lines of a backtest's JSON."""
    document = json.loads(stepwatch("backtest", "--format=json", *paths))
    for run in sorted(document["runs"], key=lambda run: (run["files"], run["run"])):
        records = f"{run['records']} records, steps {run['first_step']}-{run['last_step']}"
        yield f"{run['run']}: {run['format']}, {records}"
        yield from sorted(f"  {_said(alert, details=details)}" for alert in run["alerts"])
    yield from sorted(f"left out: {each}" for each in document["left_out"])


def _said(alert: Mapping[str, Any], *, details: bool) -> str:
    words = [alert["alert"], alert["severity"], f"{alert['first_record']}-{alert['last_record']}"]
    if alert["inhibited"]:
        words.append("inhibited")
    if details:
        words += [
            f"{name} {rounded(alert[name])}" for name in ("value", "threshold") if alert[name] is not None
        ]
    return " ".join(words)
