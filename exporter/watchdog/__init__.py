"""The watchdog: reports faults that keep Prometheus from storing and evaluating, and so from reporting.

It checks the disks with the stack's state, Prometheus, Alertmanager and the stacks on configured peers, and
posts its findings to Alertmanager.
"""
