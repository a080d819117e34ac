"""Simulated training runs, to try Stepwatch without a trainer."""

RUNS = "demo/"
"""How the names of the simulated runs begin."""

OVERRIDES = (
    # It hangs on purpose, and Stalled is to fire within three minutes.
    {"runs": f"{RUNS}hangs", "alerts": {"Stalled": {"silence": "1m"}}},
    # They start over when they are done, and on `make demo-reset`.
    {"runs": f"{RUNS}*", "alerts": {"Restarting": {"enabled": False}}},
)
"""Limits of these runs that differ from the usual ones, as in config.yaml: they come after the user's own."""
