"""Limits of the simulated runs that differ from those of real ones."""

from __future__ import annotations

RUNS = "demo/"
"""How the names of the simulated runs begin."""

OVERRIDES = (
    # It hangs on purpose, and Stalled is to fire within three minutes.
    {"runs": f"{RUNS}hangs", "alerts": {"Stalled": {"silence": "1m"}}},
    # They start over when they are done, and on `make demo-reset`.
    {"runs": f"{RUNS}*", "alerts": {"Restarting": {"enabled": False}}},
)
"""As in config.yaml, where they come after the user's own."""
