"""The circuit breaker: what config.yaml says is to be done about a run while an alert about it fires.

Data flows one way: Alertmanager's webhook and the state of Prometheus, Alertmanager and the run exporter
(``stack_client``) -> the decision (``policy``) -> the audit log (``audit``) -> the step (``steps``,
``targets``).
The audit log is the only state: what was done, and so what must not be done again, is read from it.
"""
