"""Limits of the alerts on boxes whose GPUs, or news of them, are missing. Why each number: config.yaml."""

from __future__ import annotations

from pydantic import Field

from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import PositiveSpan, Severity, Span


class GPUsMissing(StackBlock):
    """There are fewer GPUs than are expected, or were `within` the last while."""

    severity: Severity = "warning"
    within: PositiveSpan = Duration.parse("1d")
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class GPUExporterStale(StackBlock):
    """The GPU exporter answers, but what it last read is older than `age`, or the driver tells it nothing."""

    severity: Severity = "warning"
    age: PositiveSpan = Duration.parse("1m")
    within: PositiveSpan = Duration.parse("1d")
    for_: Span = Field(default=Duration.parse("5m"), alias="for")
