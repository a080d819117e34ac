"""The circuit breaker: acts on runs while alerts about them fire, as config.yaml says.

Alertmanager's webhook and the state of the stack (``stack_client``) lead to a decision (``policy``), a line
of the audit log (``audit``), which is the only state, and a step (``targets``).
"""
