"""Keys of scoped JSON lines: those of home-made loops, and one of their own."""

from __future__ import annotations

from exporter.runs.signals.key import Keys, joined
from exporter.runs.signals.keys import generic

KEYS: Keys = joined(generic.KEYS, {"truncated_ratio": ("clip_ratio",)})
