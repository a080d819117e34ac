"""Limits of the alerts on what happens to a run, a target or Stepwatch itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from stepwatch.config.block import Block
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import Count, Limit, PositiveSpan, Severity, Span, Switch


class Stalled(Block):
    """No step for `silence` and for `intervals` typical steps, with a sign of life."""

    severity: Severity = "critical"
    silence: PositiveSpan = Duration.parse("10m")
    intervals: Limit = 5


class RunFailed(Block):
    """The log holds the failure."""

    severity: Severity = "critical"


class RunVanished(Block):
    """The writer is gone before the known end."""

    severity: Severity = "critical"


class RunStopped(Block):
    """The writer is gone or silent, and nothing says how it ended."""

    severity: Severity = "warning"


class RunFinished(Block):
    """The run reached its end."""

    enabled: Switch = False
    severity: Severity = "info"


class NeverStarted(Block):
    """A log grows for `silence` without a step; there is no run yet that an override could name."""

    about_runs: ClassVar[bool] = False

    severity: Severity = "warning"
    silence: PositiveSpan = Duration.parse("30m")


class Restarting(Block):
    """The run was started again `restarts` times within an hour."""

    severity: Severity = "critical"
    restarts: Count = 3


class ResumedWithLoss(Block):
    """The run went back by `steps` or more within the last hour."""

    severity: Severity = "info"
    steps: Count = 1


class StackBlock(Block):
    """An alert about Stepwatch itself or its targets, which no override by run can touch."""

    about_runs: ClassVar[bool] = False

    severity: Severity = "critical"
    for_: Span = Field(default=Duration.parse("1m"), alias="for")


class ExporterDown(StackBlock):
    """The run exporter does not answer."""


class TargetDown(StackBlock):
    """A target under `scrape` does not answer."""

    severity: Severity = "warning"
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class RuleFailures(StackBlock):
    """Prometheus fails to evaluate rules."""


class NotificationFailures(StackBlock):
    """Messages do not reach Alertmanager or a receiver."""


class ConfigReloadFailed(StackBlock):
    """Prometheus or Alertmanager refused a new configuration."""

    severity: Severity = "warning"


class Watchdog(Block):
    """Always fires: its absence says that the stack is dead."""

    about_runs: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = {"info": "Watchdog"}
