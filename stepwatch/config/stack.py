"""Limits of alerts on Stepwatch itself. Field names are the keys of config.yaml; why each number: there."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stepwatch.config.block import Block
from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration, Size
from stepwatch.config.scalars import Count, PositiveSpan, Ratio, Severity, Span, StorageSize


class SourceDown(StackBlock):
    """An MLflow server does not answer, or a page never did."""

    severity: Severity = "warning"
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class MountHung(StackBlock):
    """A file system does not answer the run exporter."""

    severity: Severity = "warning"


class SeriesLimit(StackBlock):
    """Runs or whole targets were left out, or more than `raw_keys` keys of a run."""

    severity: Severity = "warning"
    raw_keys: Count = 1000


class ClockSkew(StackBlock):
    """Two clocks are this far `apart`."""

    severity: Severity = "warning"
    apart: PositiveSpan = Duration.parse("30s")
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class TSDBNearLimit(StackBlock):
    """More than `above`, a share, of `retention.size` is in use, but of `retention.time` less."""

    severity: Severity = "warning"
    above: Ratio = 0.9


class AlertingBroken(Block):
    """What keeps Prometheus from storing, evaluating or notifying; the watchdog tells of it, and no rule."""

    about_runs: ClassVar[bool] = False

    severity: Severity = "critical"


class StateDiskLow(StackBlock):
    """A disk that holds the stack's state has less than a share `free`, unless that is `enough`."""

    severity: Severity = "warning"
    free: Ratio = 0.1
    enough: StorageSize = Size.parse("5GB")


class TSDBFailures(StackBlock):
    """Prometheus fails to write its data, or had to repair them."""

    severity: Severity = "warning"
