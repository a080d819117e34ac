"""Commands of an operator: each takes the configuration file and ``say``, and returns an exit code."""
