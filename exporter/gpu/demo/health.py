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
    """The card has set aside another row for each bad one."""
    errors = float(sickness.errors(moment))
    return each("gpu_remapped_rows_total", "cause", {"correctable": 0.0, "uncorrectable": errors})


def _row_state(moment: Moment) -> Iterator[Reading]:
    """It uses those from the next reset on."""
    yield Reading("gpu_row_remap_pending", sickness.errors(moment) > 0)
    yield Reading("gpu_row_remap_failed", 0)


def _recovery(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_recovery_action", RESET if sickness.errors(moment) else 0)


PARTS = (
    Part("GetTotalEccErrors", Tier.SLOW, _ecc),
    Part("GetRemappedRows", Tier.SLOW, _rows),
    Part("RowRemapState", Tier.SLOW, _row_state),
    Part("RecoveryAction", Tier.SLOW, _recovery),
)
