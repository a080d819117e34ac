"""Which alerts are one incident: while the cause fires, Alertmanager does not notify of its effects.

A cause whose severity is info inhibits nothing: no one is notified of it. One that is a warning inhibits no
page, unless the pair says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stepwatch.alerts.model.identity import DISK, GPU, HOST, NODE, RUN, SERVER, Labels

_PRESENT = ("run", "gpu", "mountpoint", "job", "instance", "node")
"""Of the labels that both have in common the first of these must be there: an absent label equals an absent
label."""

ENDED = "RunFailed|RunVanished|RunStopped"
_ACTIONS = "ActionPending|ActionTaken"
"""What the circuit breaker says; it may have ended the run itself."""
_REPAIRS = "63|92|94"
"""Xid errors about memory that a reset repairs."""


class Pair(NamedTuple):
    """A cause and its effects, about the same thing.

    Attributes:
        cause: Matchers of the cause.
        effect: Matchers of what is not notified of meanwhile; no alert matches both.
        same: The labels that both have in common.
        why: The reason, as the rendered file gives it.
        by_warning: Whether a cause that is a warning inhibits pages, too.
    """

    cause: tuple[str, ...]
    effect: tuple[str, ...]
    same: Labels
    why: str
    by_warning: bool = False

    @property
    def rules(self) -> Iterator[dict[str, Any]]:
        """The rules of inhibition, as Alertmanager's configuration has them."""
        severities: list[tuple[list[str], list[str]]]  # of the cause, and of the effect
        if any(matcher.startswith("severity=") for matcher in self.cause):
            severities = [([], [])]
        elif self.by_warning or any(matcher.startswith("severity=") for matcher in self.effect):
            severities = [(['severity!="info"'], [])]
        else:
            severities = [(['severity="critical"'], []), (['severity="warning"'], ['severity!="critical"'])]
        there = [f'{label}=~".+"' for label in _PRESENT if label in self.same][:1]
        equal = {"equal": list(self.same)} if self.same else {}
        for cause, effect in severities:
            yield {
                "source_matchers": [*self.cause, *cause, *there],
                "target_matchers": [*self.effect, *effect, *there],
                **equal,
            }


def _named(alerts: str) -> str:
    return f'alertname=~"{alerts}"' if "|" in alerts else f'alertname="{alerts}"'


def _pair(cause: str, effect: str, same: Labels, why: str, *more: str, by_warning: bool = False) -> Pair:
    """Return a pair of alerts by name; ``more`` are matchers of the cause."""
    return Pair((_named(cause), *more), (_named(effect),), same, why, by_warning)


PAIRS = (
    Pair(
        (_named(ENDED),),
        (f'alertname!~"{ENDED}|{_ACTIONS}"',),
        RUN,
        "How a run ended outweighs whatever else it did.",
        by_warning=True,
    ),
    Pair(
        (_named("Stalled"),),
        ('topic=~"reward|kl|entropy|length|gradient"',),
        RUN,
        "The signals of a run that takes no steps are old. Its GPU and rollout alerts may be the cause.",
        by_warning=True,
    ),
    Pair(
        ('severity="critical"', 'topic=~".+"'),
        ('severity="warning"', f'alertname!~"{ENDED}|{_ACTIONS}"', 'topic=~".+"'),
        (*RUN, "topic"),
        "A topic's critical alert outweighs its warnings, but not RunStopped: a Stalled that still holds"
        " would inhibit it, and be inhibited by it.",
    ),
    _pair(
        "LengthCollapse",
        "SlowSteps",
        RUN,
        "A step with few tokens still takes its fixed time, so short responses alone lower tokens per second."
        " Slowness shortens no response.",
    ),
    *(
        Pair(
            (_named(name), 'severity="critical"'),
            (_named(name), 'severity="warning"'),
            same,
            "One fault: the critical alert says more than the warning of the same name.",
        )
        for name, same in (("DiskLow", DISK), ("GPUXid", GPU), ("GPURecoveryNeeded", GPU))
    ),
    _pair(
        "GPUXid",
        "GPULost|GPURecoveryNeeded|GPURowRemapPending|GPURowRemapFailed|FabricDown|GPUECCUncorrectable"
        "|NVLinkErrors",
        GPU,
        "The code says what failed; the others are what follows from it, or what the driver counted of it.",
        'severity="critical"',
    ),
    _pair(
        "GPUXid",
        "GPURowRemapPending",
        GPU,
        "The code is the repair that waits for a reset.",
        f'xid=~"{_REPAIRS}"',
    ),
    _pair("GPULost", "GPURecoveryNeeded", GPU, "A GPU that is lost is recovered before anything else."),
    _pair(
        "GPUECCUncorrectable",
        "GPURowRemapPending",
        GPU,
        "The error is why memory waits for its repair, and pages.",
    ),
    Pair(
        (_named("GPUECCUncorrectable"),),
        (_named("GPUXid"), 'severity="warning"', 'xid=~"63|94"'),
        GPU,
        "The codes report the same error: that it was contained, and that its memory is replaced.",
    ),
    _pair(
        "GPURecoveryNeeded",
        "GPURowRemapPending",
        GPU,
        "The recovery that the driver requests includes the reset.",
    ),
    _pair(
        "GPUThermalThrottle|GPUPowerBrake",
        "Straggler",
        GPU,
        "They say what holds the clocks of the GPU down.",
    ),
    _pair(
        "NodeLost",
        "RayNodeLost|AgentBacklog",
        NODE,
        "What a node that is lost runs is lost with it, and its last data came late.",
    ),
    _pair("GPUThermalThrottle", "GPUHot", GPU, "A GPU that throttles itself is hot."),
    _pair(
        "EnginePreemptions",
        "EngineKVCacheFull",
        SERVER,
        "Requests are preempted because the cache is full; a full cache alone only delays them.",
    ),
    _pair("ExporterDown", "TargetDown", SERVER, "The run exporter is a target, too."),
    _pair(
        "RuleFailures",
        "TSDBFailures",
        HOST,
        "Rules that cannot be evaluated or stored page, and their error names the damage.",
    ),
    _pair(
        "AlertingBroken",
        "ExporterDown|TargetDown|GPUExporterStale|EngineGone|RayNodeLost|RuleFailures|TSDBFailures"
        "|StateDiskLow|NotifierDown|NodeLost",
        (),
        "What Prometheus cannot store it takes for missing. The watchdog, which notifies of it, does not ask"
        " Prometheus.",
        'fault!="notifications_dropped"',
        by_warning=True,
    ),
)
