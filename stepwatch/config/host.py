"""Limits of the alerts on machines. Field names are the keys of config.yaml; why each number: there."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stepwatch.config.block import Block, Level
from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration, Size
from stepwatch.config.scalars import Limit, PositiveSpan, Ratio, Severity, Span, StorageSize


class HostMemory(StackBlock):
    """More than `above`, a share, of the memory is in use, or none will be left `full_within`."""

    severity: Severity = "warning"
    above: Ratio = 0.95
    full_within: PositiveSpan = Duration.parse("4h")
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class DiskWarning(Level):
    """Less than a share `free`, or less than so many `checkpoints`, are left."""

    falling: ClassVar[frozenset[str]] = frozenset({"free", "checkpoints"})

    free: Ratio = 0.1
    checkpoints: Limit = 2


class DiskCritical(DiskWarning):
    """As the warning."""

    free: Ratio = 0.01
    checkpoints: Limit = 1


class DiskLow(Block):
    """DiskLow; what is `enough` on any disk, whatever the share."""

    about_runs: ClassVar[bool] = False

    warning: DiskWarning | None = DiskWarning()
    critical: DiskCritical | None = DiskCritical()
    enough: StorageSize = Size.parse("1TB")
    for_: Span = Field(default=Duration.parse("5m"), alias="for")
