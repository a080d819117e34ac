"""Limits of the alerts on memory errors of GPUs, and on what the driver wants done about a fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from stepwatch.config.block import Block
from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import RecoveryAction, Severity, Span


class GPUECCUncorrectable(Block):
    """Memory errors that could not be corrected."""

    about_runs: ClassVar[bool] = False

    severity: Severity = "critical"


class GPURowRemapPending(StackBlock):
    """A bad part of the memory is replaced at the next reset."""

    severity: Severity = "warning"


class GPURowRemapFailed(StackBlock):
    """A bad part of the memory could not be replaced."""

    severity: Severity = "warning"


class GPURecoveryNeeded(Block):
    """The driver asks for one of these actions (`critical`), or for another one (a warning)."""

    about_runs: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = {"warning": "GPURecoveryNeeded", "critical": "GPURecoveryNeeded"}

    critical: tuple[RecoveryAction, ...] = (1, 2, 3, 6, 7)
    for_: Span = Field(default=Duration.parse("1m"), alias="for")
