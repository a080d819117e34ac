"""The files that make up one log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

Parts = Callable[[], Sequence[Path]]
"""Tells which they are now, oldest first; at least one."""
