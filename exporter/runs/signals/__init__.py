"""Signals: which key of which framework carries what, in order of preference, in base units.

``keys`` (one table a framework) -> ``reading`` (the records of one run). ``keys.catalogue`` names signals.
"""

from exporter.runs.signals.keys.catalogue import NAMES, PART_SIGNALS, SIGNALS, Signal
from exporter.runs.signals.reading import Reading, measurements

__all__ = ["NAMES", "PART_SIGNALS", "SIGNALS", "Reading", "Signal", "measurements"]
