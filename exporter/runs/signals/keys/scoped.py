"""Keys of scoped JSON lines: those of home-made loops, and one of their own."""

from __future__ import annotations

from exporter.runs.signals.keys import generic
from exporter.runs.signals.keys.key import Keys, joined

KEYS: Keys = joined(generic.KEYS, {"truncated_ratio": ("clip_ratio",)})
