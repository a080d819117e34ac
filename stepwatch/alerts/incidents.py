"""Which alerts are one incident: while the cause fires, Alertmanager sends no notification of its effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stepwatch.alerts.model.identity import DISK, GPU, HOST, NODE, RUN, SERVER, Labels

_PRESENT = ("run", "gpu", "mountpoint", "job", "instance", "node")
"""The first of these labels that both have in common must be present: an absent label equals an absent
label."""

ENDED = "RunFailed|RunVanished|RunStopped"
_ACTIONS = "ActionPending|ActionTaken"
"""Announcements of actions, which may have ended the run itself."""
_REPAIRS = "63|92|94"
"""Xid errors about memory that a reset repairs."""


class Pair(NamedTuple):
    """A cause and its effects, by matchers; ``same`` are the labels that both have in common."""

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
        "How a run ended outweighs its other alerts.",
        by_warning=True,
    ),
    Pair(
        (_named("Stalled"),),
        ('topic=~"reward|kl|entropy|length|gradient"',),
        RUN,
        "The signals of a run without new steps are stale. Its GPU and rollout alerts may be the cause.",
        by_warning=True,
    ),
    Pair(
        ('severity="critical"', 'topic=~".+"'),
        ('severity="warning"', f'alertname!~"{ENDED}|{_ACTIONS}"', 'topic=~".+"'),
        (*RUN, "topic"),
        "A topic's critical alert outweighs its warnings, except RunStopped: a Stalled that still fires"
        " would inhibit it, and be inhibited by it.",
    ),
    _pair(
        "LengthCollapse",
        "SlowSteps",
        RUN,
        "Each step has a fixed overhead, so short responses alone lower tokens per second. Slow steps do"
        " not shorten responses.",
    ),
    *(
        Pair(
            (_named(name), 'severity="critical"'),
            (_named(name), 'severity="warning"'),
            same,
            "One fault: the critical alert includes the warning of the same name.",
        )
        for name, same in (("DiskLow", DISK), ("GPUXid", GPU), ("GPURecoveryNeeded", GPU))
    ),
    _pair(
        "GPUXid",
        "GPULost|GPURecoveryNeeded|GPURowRemapPending|GPURowRemapFailed|FabricDown|GPUECCUncorrectable"
        "|NVLinkErrors",
        GPU,
        "The Xid code names the failure; the other alerts are its effects, or its counters in the driver.",
        'severity="critical"',
    ),
    _pair(
        "GPUXid",
        "GPURowRemapPending",
        GPU,
        "The Xid code reports the same repair that waits for a reset.",
        f'xid=~"{_REPAIRS}"',
    ),
    _pair("GPULost", "GPURecoveryNeeded", GPU, "A lost GPU must be recovered first."),
    _pair(
        "GPUECCUncorrectable",
        "GPURowRemapPending",
        GPU,
        "The error, which pages, is the reason for the pending repair.",
    ),
    Pair(
        (_named("GPUECCUncorrectable"),),
        (_named("GPUXid"), 'severity="warning"', 'xid=~"63|94"'),
        GPU,
        "The Xid codes report the same error: it was contained, and its memory is remapped.",
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
        "They name the reason for the low clocks of the GPU.",
    ),
    _pair(
        "NodeLost",
        "RayNodeLost|AgentBacklog",
        NODE,
        "A lost node takes its Ray node and agent with it, and its last data arrives late.",
    ),
    _pair("GPUThermalThrottle", "GPUHot", GPU, "A GPU that throttles because of heat is hot."),
    _pair(
        "EnginePreemptions",
        "EngineKVCacheFull",
        SERVER,
        "Requests are preempted because the cache is full; a full cache alone only delays them.",
    ),
    _pair("ExporterDown", "TargetDown", SERVER, "The run exporter is also a target."),
    _pair(
        "RuleFailures",
        "TSDBFailures",
        HOST,
        "Rules that cannot be evaluated or stored page, and their error names the cause.",
    ),
    _pair(
        "AlertingBroken",
        "ExporterDown|TargetDown|GPUExporterStale|EngineGone|RayNodeLost|RuleFailures|TSDBFailures"
        "|StateDiskLow|BridgeDown|NodeLost",
        (),
        "Prometheus treats data that it cannot store as missing. The run exporter sends AlertingBroken"
        " without Prometheus.",
        'fault!="notifications_dropped"',
        by_warning=True,
    ),
)
