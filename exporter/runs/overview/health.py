"""How the core signals of a run are: within their limits, beyond them, or no one knows.

What Prometheus says wins: its rules look at more than one value. Where no alert fires, a smoothed value is
held against the limits that Prometheus knows, since the rules ask for several steps as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from exporter.drawing import axis
from exporter.drawing.severity import rank
from exporter.runs.overview.models import Firing, Health, Range, State
from exporter.runs.overview.panels import Limit, Line, Panel, Panels
from exporter.runs.overview.prometheus import Said
from exporter.runs.overview.snapshot import Glance

GPU = "gpu_utilization_ratio"


class Core(NamedTuple):
    """A signal that everyone looks at first. ``topic`` is that of alerts whose rule names no signal."""

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
"""From which step on a signal, or its smoothed curve, is beyond a limit."""


class Bound(NamedTuple):
    """A limit, and where it lies now."""

    limit: Limit
    at: float

    def is_passed(self, value: float | None) -> bool:
        """Is the value beyond it, as far as this limit alone says so?"""
        return value is not None and self.limit.alone and self.limit.is_passed(value, self.at)


class Patient(NamedTuple):
    """One core signal of a run: its values, its limits, and the alerts about it."""

    core: Core
    unit: str
    advice: str
    value: float | None
    judged: float | None
    smooth: Line | None
    bounds: tuple[Bound, ...]
    alerts: tuple[Firing, ...]
    absence: str
    unlimited: str

    @property
    def passed(self) -> list[Bound]:
        """The limits that it is beyond, the worst first."""
        beyond = [bound for bound in self.bounds if bound.is_passed(self.judged)]
        return sorted(beyond, key=lambda bound: rank(bound.limit.severity))

    def range(self, severity: str) -> Range:
        """What it may not leave: the tightest limits, of those that stand alone if there are any."""
        own = [bound for bound in self.bounds if bound.limit.severity == severity]
        own = [bound for bound in own if bound.limit.alone] or own
        low = [bound.at for bound in own if bound.limit.side == "low"]
        high = [bound.at for bound in own if bound.limit.side == "high"]
        return Range(max(low, default=None), min(high, default=None))

    @property
    def state(self) -> State:
        """The worst that anyone says."""
        severities = {alert.severity for alert in self.alerts} or {
            bound.limit.severity for bound in self.passed
        }
        if "critical" in severities:
            return "critical"
        if "warning" in severities or (self.value is not None and not math.isfinite(self.value)):
            return "warning"
        return "unknown" if self.value is None or not self.bounds else "ok"

    @property
    def reasons(self) -> tuple[str, ...]:
        """The names of the alerts that make its state."""
        return tuple(dict.fromkeys(alert.name for alert in self.alerts if alert.severity == self.state))

    def diagnosis(self, since: int | None) -> str:
        """What is to be said about it."""
        if self.alerts:
            return " ".join(_message(alert) for alert in self.alerts)
        if self.value is None:
            return self.absence
        if not math.isfinite(self.value):
            return f"The last value is no finite number. {self.advice}"
        if self.passed:
            return f"{self._beyond(self.passed[0], since)} {self.advice}"
        if not self.bounds:
            return f"{self.unlimited} {self.advice}"
        names = " and ".join(dict.fromkeys(bound.limit.alert for bound in self.bounds))
        alone = any(bound.limit.alone for bound in self.bounds)
        return f"Within the limits of {names}." if alone else f"{names} looks at it together with more."

    def _beyond(self, bound: Bound, since: int | None) -> str:
        side = "above" if bound.limit.side == "high" else "below"
        judged = axis.written(self.judged or 0.0, self.unit)
        limit = axis.written(bound.at, self.unit)
        begun = "" if since is None else f" since step {since}"
        return f"Smoothed {judged}, {side} {limit}, the limit of {bound.limit.name}{begun}."


def _message(alert: Firing) -> str:
    said = f"{alert.name}: {alert.summary}. {alert.description}".strip()
    return f"{said} First: {alert.action}." if alert.action else said


def healths(glance: Glance, panels: Panels, said: Said, since: Since) -> tuple[Health, ...]:
    """How each core signal of a run is."""
    alerts = said.firing.get(glance.name, ())
    return tuple(_health(_patient(core, glance, panels, said, alerts), since) for core in CORES)


def _health(patient: Patient, since: Since) -> Health:
    core, passed = patient.core, patient.passed
    begun = since(core.signal, patient.smooth, passed[0].limit) if passed else None
    return Health(
        core.signal,
        core.title,
        patient.value,
        patient.judged,
        patient.unit,
        patient.state,
        patient.range("warning"),
        patient.range("critical"),
        patient.diagnosis(begun),
        begun,
        patient.reasons,
    )


def _patient(core: Core, glance: Glance, panels: Panels, said: Said, alerts: Sequence[Firing]) -> Patient:
    about = tuple(alert for alert in alerts if _concerns(alert, core, panels.about))
    if core.signal == GPU:
        return _of_gpus(core, glance, panels, said, about)
    panel = panels.of(core.signal)
    if panel is None:
        return Patient(core, "short", "", None, None, None, (), about, "No panel shows it.", "")
    smooth = next((line for line in panel.curves if line.smoothed and line.signal == core.signal), None)
    judged = glance.means.get(core.signal) if smooth else None
    return Patient(
        core,
        panel.unit,
        panel.description,
        glance.latest.get(core.signal),
        glance.usual.get(core.signal) if judged is None else judged,
        smooth,
        _bounds(panel, core.signal, glance.name, said),
        about,
        "The trainer does not log it.",
        _unlimited(panel, core.signal, said),
    )


def _of_gpus(core: Core, glance: Glance, panels: Panels, said: Said, alerts: tuple[Firing, ...]) -> Patient:
    absence = said.problem or "Prometheus knows of no GPU."
    for panel in panels.panels:
        for asked in panel.asked:
            if asked.signal == core.signal:
                value = said.now.get(asked, {}).get("")
                return Patient(
                    core,
                    panel.unit,
                    panel.description,
                    value,
                    value,
                    None,
                    _bounds(panel, core.signal, glance.name, said),
                    alerts,
                    absence,
                    _unlimited(panel, core.signal, said),
                )
    return Patient(core, "percentunit", "", None, None, None, (), alerts, absence, "")


def _bounds(panel: Panel, signal: str, run: str, said: Said) -> tuple[Bound, ...]:
    limits = [limit for limit in panel.limits if limit.signal == signal]
    now = [(limit, said.now.get(limit, {}).get(run)) for limit in limits]
    return tuple(Bound(limit, at) for limit, at in now if at is not None)


def _unlimited(panel: Panel, signal: str, said: Said) -> str:
    """Why no limit of the signal is known."""
    if not any(limit.signal == signal for limit in panel.limits):
        return "No alert has a limit for it."
    return f"Its limits are not known. {said.problem}" if said.problem else "Its limits are not known yet."


def _concerns(alert: Firing, core: Core, about: Mapping[str, frozenset[str]]) -> bool:
    if alert.severity not in ("critical", "warning"):
        return False
    return core.signal in about[alert.name] if alert.name in about else alert.topic == core.topic
