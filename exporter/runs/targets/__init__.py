"""Targets: files, logs and registrations -> ``target`` -> ``discovery``, which Prometheus asks for a list."""
