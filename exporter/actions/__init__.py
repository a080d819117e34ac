"""The circuit breaker: acts on runs while alerts about them fire, as config.yaml says.

Data flows one way: Alertmanager's webhook and the state of Prometheus, Alertmanager and the run exporter
(``stack_client``) -> the decision (``policy``) -> the audit log (``audit``) -> the step (``targets``).
The audit log is the only state: it shows which steps were done and must not be repeated.
"""
