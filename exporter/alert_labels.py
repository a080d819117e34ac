"""The labels that say what an alert is about."""

ABOUT = (
    *("cluster", "run", "job", "instance", "gpu", "mountpoint", "mount", "device", "port"),
    *("node", "name", "log", "url", "integration", "receiver_name"),
)
"""With its name, what tells an alert from others: by these it is counted, listed, dated and silenced.

In the order in which tables name them: all that identify what an alert is about, whatever that is.
"""
