"""What became of each run over its steps, how its core signals are, and which alerts Prometheus knows."""
