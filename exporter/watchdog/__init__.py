"""The watchdog: reports faults that keep Prometheus from storing, evaluating and alerting.

It looks at the disks that hold the stack's state, at Prometheus and at Alertmanager, and at the stacks of
configured peers on other machines, and posts findings to Alertmanager itself.
"""
