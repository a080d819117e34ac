"""The history of each run, the state of its core signals, and its alerts in Prometheus."""
