"""Runs as the history tells of them, made up: for what real logs seldom hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from exporter.runs.model.history import Row
from exporter.runs.overview.charts import Band, Chart, Curve
from exporter.runs.overview.models import (
    Episode,
    Firing,
    Health,
    Omitted,
    Range,
    RunAction,
    RunDetails,
    RunId,
    RunSummary,
    Series,
    SeriesLimit,
)
from exporter.runs.overview.overview import Overview
from exporter.runs.signals.unmapped import Candidate

NONE = Range()
ALL_SHOWN = Omitted()

HEALTHS = (
    Health("reward", "Reward", 0.412, 0.405, "short", "ok", Range(0.31), Range(0.2), ""),
    Health("kl", "KL", 0.021, 0.02, "short", "ok", Range(None, 0.52), Range(None, 1.02), ""),
    Health("policy_loss", "Policy loss", -0.013, -0.01, "short", "unknown", NONE, NONE, "No limit."),
    Health("response_length", "Response length", 412, 408, "short", "ok", Range(100, 700), Range(40), ""),
    Health("gpu_utilisation", "GPU utilisation", 0.91, 0.9, "percentunit", "ok", Range(0.1), NONE, ""),
    Health("entropy", "Entropy", 0.31, 0.3, "short", "ok", Range(0.05, 1.1), NONE, ""),
    Health("grad_norm", "Gradient norm", None, None, "short", "unknown", NONE, NONE, ""),
)
"""Of a run that goes well."""

HIGH_KL = replace(HEALTHS[1], value=1.62, judged=1.5, state="critical", since=1198)
HIGH_KL = replace(HIGH_KL, diagnosis="The KL to the reference explodes. Healthy: small, slowly rising.")

EXPLOSION = Firing(
    name="KLExplosion",
    severity="critical",
    topic="kl",
    summary="KL to the reference is exploding",
    description="KL, lowest of 3 steps, 1.62, limit 1.021 nats/token (from its start); step 1204.",
    action="stop the run",
    runbook="https://docs.example.org/runbook#klexplosion",
    dashboard="http://127.0.0.1:3000/d/stepwatch-training",
    value=1.62,
    since=1.0e9,
)


def summary(name: str = "ppo/gsm8k", **others: object) -> RunSummary:
    """A run that goes well, but for what is given."""
    usual = RunSummary(name, "running", "verl", 204, 435, 12.0, 0, 0, HEALTHS, ())
    return replace(usual, **others)  # type: ignore[arg-type]


def sick(name: str = "ppo/sick", **others: object) -> RunSummary:
    """One whose KL explodes."""
    healths = (HEALTHS[0], HIGH_KL, *HEALTHS[2:])
    return replace(summary(name, **others), healths=healths, firing=(EXPLOSION,))


def chart(title: str = "KL", steps: int = 435, **others: object) -> Chart:
    """A noisy curve and its mean, with two limits; an alert about the end of it."""
    raw = tuple((step, 0.02 + 0.1 * math.sin(step / 9) ** 2 + 0.002 * step) for step in range(1, steps + 1))
    mean = tuple((step, 0.07 + 0.002 * step) for step in range(1, steps + 1))
    limits = (
        Curve("KLHigh", (tuple((step, 0.52) for step in range(26, steps + 1)),), "warning"),
        Curve("KLExplosion", (tuple((step, 1.02) for step in range(26, steps + 1)),), "critical"),
    )
    usual = Chart(
        title,
        "How far the policy is from its reference. Healthy: small, slowly rising.",
        "short",
        None,
        None,
        1,
        steps,
        (Curve("KL", (raw,)), Curve("mean", (mean,))),
        limits,
        (
            Band("KLHigh", "warning", max(1, steps - 200), steps),
            Band("KLExplosion", "critical", steps, steps),
        ),
    )
    return replace(usual, **others)  # type: ignore[arg-type]


def story(run: RunSummary, charts: Sequence[Chart] = ()) -> RunDetails:
    """All of a run, with its last twenty steps."""
    last = run.step or 0
    rows = tuple(
        Row(step, 1.0e9 + step, {"reward": 0.4, "kl": 0.02, "entropy": 0.3})
        for step in range(last - 19, last + 1)
    )
    episodes = (
        Episode("KLHigh", "warning", 100, 120, False, ""),
        Episode("KLExplosion", "critical", 198, last, True, EXPLOSION.summary),
    )
    return RunDetails(run, tuple(charts), episodes if run.firing else (), rows)


@dataclass
class Reported(Overview):
    """An overview of made-up runs."""

    summaries: list[RunSummary] = field(default_factory=list)
    charts: tuple[Chart, ...] = ()
    prometheus: str = ""
    faults: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    about_none: tuple[Firing, ...] = ()
    actions: tuple[RunAction, ...] = ()
    omitted: Omitted = ALL_SHOWN
    notifies: bool = True

    def others(self) -> tuple[Firing, ...]:
        return self.about_none

    def runs(self) -> list[RunSummary]:
        return [replace(run, candidates=self.candidates) for run in self.summaries]

    def ids(self) -> list[RunId]:
        return [run.id for run in self.summaries]

    def run(self, name: RunId) -> RunDetails | None:
        found = (story(run, self.charts) for run in self.runs() if run.id == name)
        return next(found, None)

    def series(self, name: RunId, signal: str) -> Series | None:
        if self.run(name) is None or signal != "kl":
            return None
        limit = SeriesLimit("KLHigh", "KLHigh", "warning", "high", True, ((2, 0.52),))
        return Series("kl", "short", ((1, 0.02), (2, 0.03), (3, math.nan)), (limit,))
