"""Signals: which key of which framework carries what, in order of preference, in base units.

``trainers/`` (one table a framework) and ``catalogue.yaml`` (what each signal is) -> ``tables`` ->
``reading`` (the records of one run); keys without a signal: ``unmapped``, signals without a key: ``missing``.
"""

from exporter.runs.signals.reading import Reading
from exporter.runs.signals.tables import NAMES, PART_SIGNALS, SIGNALS, Signal
from exporter.runs.signals.unmapped import NONE_MAPPED, Mapped, measurements

__all__ = ["NAMES", "NONE_MAPPED", "PART_SIGNALS", "SIGNALS", "Mapped", "Reading", "Signal", "measurements"]
