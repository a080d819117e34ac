"""The state of a run's core signals: within their limits, beyond them, or unknown.

An alert of Prometheus wins, since its rule looks at more than one value. Where none fires, a smoothed value
is compared with the limits that Prometheus knows, since rules ask for several steps as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from exporter.runs.overview import charts
from exporter.runs.overview.charts import rank
from exporter.runs.overview.models import Firing, Health, Range, RunId, RunSummary, State
from exporter.runs.overview.panels import RUN, Limit, Line, Panel, Panels, Query
from exporter.runs.overview.prometheus import Answers

GPU = "gpu_utilization_ratio"
GPU_OF_RUN = Query(
    "mean of the run's GPUs",
    GPU,
    "avg by (cluster, run) ("
    f"group by (cluster, run, instance, gpu) (rl_run_gpu{{{RUN}}})"
    " * on (cluster, instance, gpu) group_left () ("
    f"max by (cluster, instance, gpu) ({GPU})"
    " or max by (cluster, instance, gpu) (DCGM_FI_DEV_GPU_UTIL / 100)))",
)
"""Asked for on a hub, where the mean of all GPUs says nothing of a run."""


class Core(NamedTuple):
    """A signal of every run's summary. ``topic`` is that of alerts whose rule names no signal."""

    signal: str
    title: str
    topic: str


CORES = (
    Core("reward", "Reward", "reward"),
    Core("kl", "KL", "kl"),
    Core("policy_loss", "Policy loss", "loss"),
    Core("response_length", "Response length", "length"),
    Core(GPU, "GPU utilisation", "gpu"),
    Core("entropy", "Entropy", "entropy"),
    Core("grad_norm", "Gradient norm", "gradient"),
)

Since = Callable[[str, Line | None, Limit], int | None]
"""Gives the step from which on a signal, or its smoothed curve, is beyond a limit."""
_NO_PANEL = Panel("", "", "short", None, None, ())
_NO_GPU_PANEL = Panel("", "", "percentunit", None, None, ())


class _Bound(NamedTuple):
    """A limit, its present value, and the step from which on the signal is beyond it."""

    limit: Limit
    at: float
    since: int | None = None


class _Reading(NamedTuple):
    """A signal's panel, its last value, the one to judge with its smoothed curve, and why it has no value."""

    panel: Panel
    value: float | None
    judged: float | None
    smooth: Line | None
    absence: str


def healths(run: RunSummary, panels: Panels, answers: Answers, since: Since) -> tuple[Health, ...]:
    """Return the state of each core signal."""
    return tuple(_health(core, run, panels, answers, since) for core in CORES)


def _health(core: Core, run: RunSummary, panels: Panels, answers: Answers, since: Since) -> Health:
    read = _of_gpus(run, panels, answers) if core.signal == GPU else _of_trainer(core.signal, run, panels)
    alerts = [alert for alert in answers.firing.get(run.id, ()) if _concerns(alert, core, panels.about)]
    limits = [limit for limit in read.panel.limits if limit.signal == core.signal]
    bounds = [
        _Bound(limit, at) for limit in limits if (at := answers.now.get(limit, {}).get(run.id)) is not None
    ]
    worst = min(
        (
            bound
            for bound in bounds
            if read.judged is not None and bound.limit.alone and bound.limit.is_passed(read.judged, bound.at)
        ),
        key=lambda bound: rank(bound.limit.severity),
        default=None,
    )
    severities = {alert.severity for alert in alerts}
    began = None
    if worst:
        began = since(core.signal, read.smooth, worst.limit)
        worst = worst._replace(since=began)
        severities = severities or {worst.limit.severity}
    state = _state(read.value, severities, known=bool(bounds))
    named = [alert for alert in alerts if alert.severity == state]
    return Health(
        core.signal,
        core.title,
        read.value,
        read.judged,
        read.panel.unit,
        state,
        _range(bounds, "warning"),
        _range(bounds, "critical"),
        " ".join(map(_message, alerts)) or _diagnosis(read, limits, bounds, worst, answers.problem),
        min((each.step for each in named if each.step is not None), default=None) if named else began,
        tuple(dict.fromkeys(alert.name for alert in named)),
    )


def _of_trainer(signal: str, run: RunSummary, panels: Panels) -> _Reading:
    panel = panels.of(signal)
    if panel is None:
        return _Reading(_NO_PANEL, None, None, None, "No panel shows this signal.")
    smooth = next((line for line in panel.curves if line.smoothed and line.signal == signal), None)
    judged = run.means.get(signal) if smooth else None
    return _Reading(
        panel,
        run.latest.get(signal),
        run.usual.get(signal) if judged is None else judged,
        smooth,
        "The trainer does not log this signal.",
    )


def _of_gpus(run: RunSummary, panels: Panels, answers: Answers) -> _Reading:
    of_runs = answers.now.get(GPU_OF_RUN)
    for panel in panels.panels:
        for query in panel.queries:
            if query.signal == GPU:
                of_box = answers.now.get(query, {}).get(RunId(""))
                value = of_box if of_runs is None else of_runs.get(run.id)
                missing = "no GPU" if of_runs is None else "no GPU of the run"
                reason = answers.problem or f"Prometheus knows of {missing}."
                return _Reading(panel, value, value, None, reason)
    return _Reading(_NO_GPU_PANEL, None, None, None, answers.problem or "Prometheus knows of no GPU.")


def _concerns(alert: Firing, core: Core, about: Mapping[str, frozenset[str]]) -> bool:
    if alert.severity not in ("critical", "warning"):
        return False
    return core.signal in about[alert.name] if alert.name in about else alert.topic == core.topic


def _state(value: float | None, severities: Collection[str], *, known: bool) -> State:
    if "critical" in severities:
        return "critical"
    if "warning" in severities or (value is not None and not math.isfinite(value)):
        return "warning"
    return "ok" if value is not None and known else "unknown"


def _range(bounds: Sequence[_Bound], severity: str) -> Range:
    """The tightest limits of a severity; limits that alone raise an alert take precedence."""
    own = [bound for bound in bounds if bound.limit.severity == severity]
    own = [bound for bound in own if bound.limit.alone] or own
    low = [bound.at for bound in own if bound.limit.side == "low"]
    high = [bound.at for bound in own if bound.limit.side == "high"]
    return Range(max(low, default=None), min(high, default=None))


def _diagnosis(
    read: _Reading,
    limits: Sequence[Limit],
    bounds: Sequence[_Bound],
    worst: _Bound | None,
    problem: str | None,
) -> str:
    """What to say about a signal without an alert."""
    advice = read.panel.description
    if read.value is None:
        return read.absence
    if not math.isfinite(read.value):
        return f"The last value is not a finite number. {advice}"
    if worst:
        limit, at, since = worst
        side = "above" if limit.side == "high" else "below"
        judged, bound = (charts.format_number(each, read.panel.unit) for each in (read.judged or 0.0, at))
        begun = "" if since is None else f" since step {since}"
        return f"Smoothed {judged}, {side} {bound}, the limit of {limit.name}{begun}. {advice}"
    if bounds:
        names = " and ".join(dict.fromkeys(bound.limit.alert for bound in bounds))
        alone = any(bound.limit.alone for bound in bounds)
        return f"Within the limits of {names}." if alone else f"{names} uses it together with other signals."
    if not limits:
        return f"No alert has a limit for this signal. {advice}"
    return (
        f"Its limits are unknown. {problem} {advice}"
        if problem
        else f"Its limits are not known yet. {advice}"
    )


def _message(alert: Firing) -> str:
    text = f"{alert.name}: {alert.summary}. {alert.description}".strip()
    return f"{text} First: {alert.action}." if alert.action else text
