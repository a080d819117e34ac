"""How the GPUs of this machine are read: the `gpus` section."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from stepwatch.schema.errors import Fault
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import GpuCount, PositiveSpan, ProcessCount, Switch
from stepwatch.schema.section import Section, default

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
        fix="write 1s, unless the processor is short",
    )


class Gpus(Section):
    """What the GPU exporter is configured with."""

    interval: Annotated[PositiveSpan, AfterValidator(_readable)] = default(
        Duration.parse("1s"),
        "How often the driver is read; every 15th time also what changes rarely (memory and "
        "link errors, limits). 1s catches bursts and costs 1 % of a core for 8 GPUs. At most "
        "intervals.scrape, or a rule would count one value several times. Affects GPULost: no "
        "value older than three intervals is shown.",
    )
    expected: GpuCount = default(
        0,
        "How many GPUs this machine should have. 0: the most seen since the exporter started, "
        "which cannot know of one that was already gone. Affects GPUsMissing.",
    )
    processes: ProcessCount = default(
        0,
        "How many processes of each GPU, those with the most memory, are named by name, pid "
        "and container; the rest as one. 0: only their number. One or two series each. "
        "With plain processes, Prometheus then records which run uses which GPU. "
        "Containers of the stack then see the host's /proc, read-only.",
    )
    serial: Switch = default(
        False, "Serial numbers of the boards in gpu_info, for RMA. They identify the machine."
    )
    links: Switch = default(
        False,
        "Bytes and errors of each NVLink instead of sums: 18 links are 90 series per GPU. To "
        "find the one bad link.",
    )
    pcie: Switch = default(
        False,
        "PCIe traffic of GPUs before Hopper: each sample blocks a thread for 40 ms. Newer "
        "GPUs report it anyway.",
    )
