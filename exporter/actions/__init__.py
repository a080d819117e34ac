"""The circuit breaker: acts on runs while alerts about them fire, as config.yaml says."""
