"""Limits of the alerts on GPUs that are slowed down. Why each number: config.yaml."""

from __future__ import annotations

from pydantic import Field

from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import Ratio, Severity, Span


class GPUThermalThrottle(StackBlock):
    """For more than `above`, a share of the time, heat holds the clocks down."""

    severity: Severity = "warning"
    above: Ratio = 0.1
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class GPUPowerBrake(StackBlock):
    """For more than `above`, a share of the time, the box's power supply holds the clocks down."""

    severity: Severity = "warning"
    above: Ratio = 0.01
