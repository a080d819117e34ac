"""The labels that say what an alert is about."""

ABOUT = (
    *("cluster", "run", "job", "instance", "gpu", "mountpoint", "mount", "device", "port"),
    *("node", "name", "log", "url", "integration", "receiver_name"),
)
"""Together with its name, these identify an alert: tables, counts, onsets and silences use them.

In the order in which tables show them.
"""
