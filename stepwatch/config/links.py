"""Limits of the alerts on a GPU's links: PCIe, NVLink and its fabric. Why each number: config.yaml."""

from __future__ import annotations

from pydantic import Field

from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import Limit, PositiveSpan, Ratio, Severity, Span


class NVLinkErrors(StackBlock):
    """More than `crc_per_second` packets were garbled, or more than `errors` graver ones in an hour."""

    severity: Severity = "warning"
    crc_per_second: Limit = 100
    errors: Limit = 2


class PCIeDegraded(StackBlock):
    """A GPU with work (`busy`) has a slower link than it could, or less than `width` of its lanes."""

    severity: Severity = "warning"
    busy: Ratio = 0.3
    width: Ratio = 1
    for_: Span = Field(default=Duration.parse("10m"), alias="for")


class FabricDown(StackBlock):
    """A GPU has not joined the NVLink fabric, or has fewer NVLinks than `within` the last while."""

    within: PositiveSpan = Duration.parse("1d")
    for_: Span = Field(default=Duration.parse("10m"), alias="for")
