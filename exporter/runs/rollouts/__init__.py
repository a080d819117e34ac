"""Servers that a run starts and ends, found where it leaves word of them, for Prometheus to read."""
