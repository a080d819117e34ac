"""Limits of the alerts on GPUs. Field names are the keys of config.yaml; why each number: there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from stepwatch.config.block import Block
from stepwatch.config.errors import Fault, Faults
from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import Limit, Ratio, Severity, Span, Switch, XidCode


class GPULost(StackBlock):
    """The driver cannot read a GPU."""

    for_: Span = Field(default=Duration.parse("30s"), alias="for")


class GPUXid(Block):
    """The driver reports an error of a GPU; codes in neither list are warnings."""

    about_runs: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = {"warning": "GPUXid", "critical": "GPUXid"}

    critical: tuple[XidCode, ...] = (46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143)
    ignored: tuple[XidCode, ...] = (45,)

    @model_validator(mode="after")
    def _one_severity_each(self) -> GPUXid:
        if faults := list(self._repeated()):
            raise Faults(faults)
        return self

    def _repeated(self) -> Iterator[Fault]:
        seen: dict[int, str] = {}
        for key, codes in (("critical", self.critical), ("ignored", self.ignored)):
            for index, code in enumerate(codes):
                if code in seen:
                    yield Fault(
                        f"is also in {seen[code]}",
                        expected="each code once, in one of the two lists",
                        fix="delete one of the two",
                        at=(key, index),
                        value=code,
                    )
                seen.setdefault(code, key)


class GPUHot(StackBlock):
    """Less than `margin` degrees Celsius are left before a GPU slows down."""

    severity: Severity = "warning"
    margin: Limit = 5
    for_: Span = Field(default=Duration.parse("2m"), alias="for")


class GPUMemoryHigh(StackBlock):
    """More than `above`, a share, of a GPU's memory is in use."""

    enabled: Switch = False
    severity: Severity = "warning"
    above: Ratio = 0.95
    for_: Span = Field(default=Duration.parse("10m"), alias="for")


class GPUIdleWhileRunning(Block):
    """All GPUs below a share of utilisation while a run's step takes `intervals` usual ones."""

    severity: Severity = "warning"
    below: Ratio = 0.05
    intervals: Limit = 2
