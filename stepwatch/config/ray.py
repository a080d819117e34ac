"""Limits of the alerts on Ray. Field names are the keys of config.yaml; why each number: there."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stepwatch.config.block import Block
from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration, Size
from stepwatch.config.scalars import Ratio, Severity, Span, StorageSize


class RayWorkerOOM(Block):
    """Ray killed a worker for memory."""

    about_runs: ClassVar[bool] = False

    severity: Severity = "warning"


class RayNodeLost(StackBlock):
    """A node is on Ray's list no more while a run is running."""

    severity: Severity = "warning"
    for_: Span = Field(default=Duration.parse("2m"), alias="for")


class RayObjectStoreSpilling(StackBlock):
    """More than `above` of a node's objects are on disk."""

    severity: Severity = "warning"
    above: StorageSize = Size.parse("10GB")
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class RayDiskLow(StackBlock):
    """More than `above`, a share, of a node's disk is in use."""

    severity: Severity = "warning"
    above: Ratio = 0.9
    for_: Span = Field(default=Duration.parse("5m"), alias="for")
