"""How the GPUs of this machine are read: the `gpus` section."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from stepwatch.config.errors import Fault
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import GpuCount, PositiveSpan, ProcessCount, Switch
from stepwatch.config.section import Section

# Judged: five times the processor time, and the driver itself takes samples hardly more often.
SHORTEST = Duration.parse("200ms")
# What is read each 15th time would be minutes old: errors of memory, links.
LONGEST = Duration.parse("15s")


def _readable(value: Duration) -> Duration:
    if SHORTEST <= value <= LONGEST:
        return value
    raise Fault(
        f"is shorter than {SHORTEST}" if value < SHORTEST else f"is longer than {LONGEST}",
        expected=f"from {SHORTEST} to {LONGEST}",
        cure="write 1s, unless the processor is short",
    )


class Gpus(Section):
    """What the GPU exporter is told."""

    interval: Annotated[PositiveSpan, AfterValidator(_readable)] = Duration.parse("1s")
    expected: GpuCount = 0
    processes: ProcessCount = 0
    serial: Switch = False
    links: Switch = False
    pcie: Switch = False
