"""What a simulated card says of its memory, and of what it needs."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.demo import sickness
from exporter.gpu.demo.moment import Moment
from exporter.gpu.demo.part import Part, each

RESET = 1


def _ecc(moment: Moment) -> Iterator[Reading]:
    counts = {"corrected": 0.0, "uncorrected": float(sickness.errors(moment))}
    yield from each("gpu_ecc_errors_total", "type", counts)
    yield from each("gpu_ecc_volatile_errors_total", "type", counts)


def _rows(moment: Moment) -> Iterator[Reading]:
    """The card has set aside another row for each bad one, and uses it from the next reset on."""
    errors = float(sickness.errors(moment))
    yield from each("gpu_remapped_rows_total", "cause", {"correctable": 0.0, "uncorrectable": errors})
    yield Reading("gpu_row_remap_pending", errors > 0)
    yield Reading("gpu_row_remap_failed", 0)


def _recovery(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_recovery_action", RESET if sickness.errors(moment) else 0)


PARTS = (
    Part("GetTotalEccErrors", Tier.SLOW, _ecc),
    Part("GetRemappedRows", Tier.SLOW, _rows),
    Part("RecoveryAction", Tier.SLOW, _recovery),
)
