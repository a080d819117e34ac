"""Whether a GPU's memory and links hold, and what the driver wants to be done about it."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.gpu.nvml.batch import Way
from exporter.gpu.nvml.fields import Field


def _counts(part: str, metric: str, label: str, numbers: dict[str, int]) -> Iterator[Field]:
    return (Field(part, metric, (Way(number),), {label: name}) for name, number in numbers.items())


FIELDS = (
    *_counts("ecc", "gpu_ecc_volatile_errors_total", "type", {"corrected": 3, "uncorrected": 4}),
    *_counts("ecc", "gpu_ecc_errors_total", "type", {"corrected": 5, "uncorrected": 6}),
    *_counts("row_remap", "gpu_remapped_rows_total", "cause", {"correctable": 142, "uncorrectable": 143}),
    Field("row_remap", "gpu_row_remap_pending", (Way(144),)),
    Field("row_remap", "gpu_row_remap_failed", (Way(145),)),
    *_counts("retired_pages", "gpu_retired_pages_total", "cause", {"single_bit": 29, "double_bit": 30}),
    Field("retired_pages", "gpu_retired_pages_pending", (Way(31),)),
    Field("recovery_action", "gpu_recovery_action", (Way(230),)),
    Field("pcie_replays", "gpu_pcie_replays_total", (Way(94),)),
)
