"""What is known of each alert beside its rule: the labels that say what it is about, and its onset."""

ABOUT = (
    *("cluster", "run", "job", "instance", "gpu", "mountpoint", "mount", "device", "port"),
    *("node", "name", "log", "url", "integration", "receiver_name"),
)
"""Together with its name, these identify an alert: tables, counts, onsets and silences use them.

In the order in which tables show them.
"""

# The onset is the first evaluation at which the rule's condition held, of the unbroken stretch since which it
# has held or the alert has fired: not when the alert began to fire, which is later by its ``for``. Its step
# is the run's step at that evaluation. In an old log, where each record is an evaluation, it is the first
# record at which the condition holds.

ONSET = "rl_alert_onset_timestamp_seconds"
"""The onset of each alert that is pending or fires, in seconds since the epoch."""

ONSET_STEP = "rl_alert_onset_step"
"""The step of the run at the onset of each alert about a run that is pending or fires."""
