"""What is wrong with the sick card: an error of its memory, too little cooling, a bad link."""

from __future__ import annotations

from exporter.gpu.demo.load import Phase
from exporter.gpu.demo.moment import Moment

XID_AFTER_SECONDS = 45.0
XID_EVERY_SECONDS = 180.0
HOT_AFTER_SECONDS = 60.0
SLOWED_SHARE = 0.2
"""How much of the clock the heat costs."""
LINK_ERROR_SECONDS = 2.0
"""From one bad packet to the next."""


def errors(moment: Moment) -> int:
    """Uncorrectable memory errors so far, each with an Xid error."""
    return errors_after(moment.seconds) if moment.sick else 0


def errors_after(seconds: float) -> int:
    """The same of a card that is sick, so long after the start."""
    late = seconds - XID_AFTER_SECONDS
    return 0 if late < 0 else 1 + int(late // XID_EVERY_SECONDS)


def heat(moment: Moment) -> float:
    """Which share of the way to too hot the card has gone, from 0 to 1."""
    return min(1.0, moment.seconds / HOT_AFTER_SECONDS) if moment.sick else 0.0


def slowed(moment: Moment) -> bool:
    """Is the clock held down for the heat?"""
    return heat(moment) == 1 and _busy(moment.phase)


def slowed_seconds(moment: Moment) -> float:
    """For how long, so far, it was."""
    cool = moment._replace(seconds=min(moment.seconds, HOT_AFTER_SECONDS))
    return moment.total(_busy) - cool.total(_busy) if moment.sick else 0.0


def link_errors(moment: Moment) -> int:
    """Bad packets on NVLink so far."""
    return int(moment.seconds // LINK_ERROR_SECONDS) if moment.sick else 0


def _busy(phase: Phase) -> bool:
    return phase.utilization > 0.5
